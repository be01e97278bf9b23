"""RocksDB, called in this process: Debian's library by its C interface, so that neither its start nor the opening of a database is timed."""

import ctypes
import os
import re
import subprocess
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint64, c_void_p

VALUE = 4096


def library_name():
    listed = subprocess.run(["ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    return re.search(r"librocksdb\.so\.\S+", listed).group()


def library():
    return ctypes.CDLL(library_name())


class Rocks:
    """A database through RocksDB's C interface."""

    def __init__(self, path, table_mib):
        self.c = library()
        self.path, self.written = path, 0
        options = self.new("options_create")
        self("options_set_create_if_missing", options, c_ubyte(1))
        self("options_set_compression", options, c_int(0))
        self("options_set_disable_auto_compactions", options, c_int(1))
        self("options_set_level0_slowdown_writes_trigger", options, c_int(10000))
        self("options_set_level0_stop_writes_trigger", options, c_int(20000))
        self("options_set_write_buffer_size", options, c_size_t((table_mib + 2) << 20))
        table = self.new("block_based_options_create")
        self("block_based_options_set_format_version", table, c_int(5))
        self("options_set_block_based_table_factory", options, table)
        self.options = options
        self.db = self.checked("open", options, path.encode())
        self.write_options = self.new("writeoptions_create")
        self("writeoptions_disable_WAL", self.write_options, c_int(1))
        self.flush_options = self.new("flushoptions_create")

    def __call__(self, name, *args):
        return getattr(self.c, "rocksdb_" + name)(*args)

    def new(self, name, *args):
        function = getattr(self.c, "rocksdb_" + name)
        function.restype = c_void_p
        return c_void_p(function(*args))

    def checked(self, name, *args):
        error = c_char_p()
        result = self.new(name, *args, byref(error))
        if error.value:
            raise SystemExit(f"rocksdb_{name}: {error.value.decode()}")
        return result

    def fill(self, mib, table_mib):
        """Incompressible values, flushed to a table as often as `table_mib` says."""
        per_table = (table_mib << 20) // (VALUE + 40)
        for i in range((mib << 20) // (VALUE + 40)):
            key = b"%016d" % self.written
            self.written += 1
            args = (key, c_size_t(16), os.urandom(VALUE), c_size_t(VALUE))
            self.checked("put", self.db, self.write_options, *args)
            if (i + 1) % per_table == 0:
                self.flush()
        self.flush()

    def flush(self):
        self.checked("flush", self.db, self.flush_options)

    def checkpoint(self, to):
        checkpoint = self.checked("checkpoint_object_create", self.db)
        self.checked("checkpoint_create", checkpoint, to.encode(), c_uint64(0))
        self("checkpoint_object_destroy", checkpoint)

    def backup_engine(self, to):
        engine = self.checked("backup_engine_open", self.options, to.encode())
        return lambda: self.checked("backup_engine_create_new_backup", engine, self.db)

    def close(self):
        self("close", self.db)


class Reader:
    """A database that is only read, with every table opened at once."""

    def __init__(self, path):
        self.c, error = library(), c_char_p()
        call = lambda name, *args: self.typed(name, c_void_p)(*args)
        options = c_void_p(call("options_create"))
        call("options_set_max_open_files", options, c_int(-1))
        self.options = c_void_p(call("readoptions_create"))
        self.db = c_void_p(call("open_for_read_only", options, path.encode(), c_ubyte(0), byref(error)))
        if error.value:
            raise SystemExit(f"cannot open {path}: {error.value.decode()}")

    def typed(self, name, result):
        function = getattr(self.c, "rocksdb_" + name)
        function.restype = result
        return function

    def get(self, number):
        length, error = c_size_t(), c_char_p()
        key = b"%016d" % number
        value = self.typed("get", c_void_p)(self.db, self.options, key, c_size_t(16), byref(length), byref(error))
        if error.value or length.value != VALUE:
            raise SystemExit(f"key {number}: {error.value or length.value}")
        self.typed("free", None)(c_void_p(value))

    def close(self):
        self.typed("close", None)(self.db)
