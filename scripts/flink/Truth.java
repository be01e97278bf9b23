import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.InputStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.core.memory.DataInputViewStreamWrapper;
import org.apache.flink.runtime.checkpoint.Checkpoints;
import org.apache.flink.runtime.checkpoint.MasterState;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.checkpoint.channel.InputChannelInfo;
import org.apache.flink.runtime.checkpoint.channel.ResultSubpartitionInfo;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;
import org.apache.flink.runtime.state.AbstractChannelStateHandle;
import org.apache.flink.runtime.state.IncrementalKeyedStateHandle.HandleAndLocalPath;
import org.apache.flink.runtime.state.IncrementalRemoteKeyedStateHandle;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupsStateHandle;
import org.apache.flink.runtime.state.KeyedBackendSerializationProxy;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.OperatorBackendSerializationProxy;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.StateObject;
import org.apache.flink.runtime.state.StreamStateHandle;
import org.apache.flink.runtime.state.changelog.ChangelogStateBackendHandle;
import org.apache.flink.runtime.state.changelog.ChangelogStateHandleStreamImpl;
import org.apache.flink.runtime.state.changelog.StateChange;
import org.apache.flink.runtime.state.changelog.inmemory.InMemoryChangelogStateHandle;
import org.apache.flink.runtime.state.filemerging.SegmentFileStateHandle;
import org.apache.flink.runtime.state.filesystem.FileStateHandle;
import org.apache.flink.runtime.state.filesystem.RelativeFileStateHandle;
import org.apache.flink.runtime.state.memory.ByteStreamStateHandle;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

/**
 * Says what Flink's own classes read in the checkpoints below a directory, as JSON, while they lie where Flink wrote them.
 *
 * <pre>Truth KIND FLINK-VERSION DIR WORK OUT</pre>
 *
 * OUT/TRUTH.json is about the whole tree; OUT/small/_metadata and OUT/small/TRUTH.json about the newest checkpoint alone, without what
 * only the other files can show.
 */
public class Truth {
    private static Path root;
    private static Path work;
    private static final Map<String, TreeSet<Long>> used = new TreeMap<>();
    private static final TreeSet<String> missing = new TreeSet<>();
    private static long checkpoint;
    private static int keyedHandles;
    private static final List<String> OF_FILES = List.of("rocksdb", "sample_rows", "keyed_backend_meta", "operator_backend_meta", "read_bytes",
            "in_tree");

    public static void main(String[] args) throws Exception {
        root = Path.of(args[2]).toAbsolutePath();
        work = Path.of(args[3]);
        Path out = Path.of(args[4]);
        RocksDB.loadLibrary();

        List<Path> files;
        try (Stream<Path> walk = Files.walk(root)) {
            files = walk.filter(Files::isRegularFile).sorted().collect(Collectors.toList());
        }
        TreeMap<Long, Map<String, Object>> checkpoints = new TreeMap<>();
        for (Path file : files) {
            if (file.endsWith("_metadata")) {
                Map<String, Object> read = checkpoint(file);
                checkpoints.put(checkpoint, read);
            }
        }
        List<Object> listed = new ArrayList<>();
        long bytes = 0;
        int unreferenced = 0;
        int shared = 0;
        for (Path file : files) {
            String name = root.relativize(file).toString();
            boolean referenced = used.containsKey(name) || file.endsWith("_metadata");
            TreeSet<Long> by = used.getOrDefault(name, new TreeSet<>());
            listed.add(map("file", name, "size", Files.size(file), "sha256", sha256(Files.readAllBytes(file)), "referenced", referenced,
                    "used_by_checkpoints", new ArrayList<>(by)));
            bytes += Files.size(file);
            unreferenced += referenced ? 0 : 1;
            shared += by.size() > 1 ? 1 : 0;
        }
        Map<String, Object> truth = map("fixture", args[0], "flink_version", args[1], "original_root", "file:" + root);
        Map<String, Object> small = new LinkedHashMap<>(truth);
        truth.put("tree", "tree");
        truth.put("note", "absolute paths in _metadata start with original_root; in_tree is the same path relative to tree/ (null: outside)");
        truth.put("summary", map("checkpoints", new ArrayList<>(checkpoints.keySet()), "keyed_handles", keyedHandles, "files", files.size(),
                "bytes", bytes, "files_unreferenced", unreferenced, "files_used_by_2_or_more_checkpoints", shared,
                "referenced_but_missing", new ArrayList<>(missing)));
        truth.put("checkpoints", new ArrayList<>(checkpoints.values()));
        truth.put("files", listed);
        Files.createDirectories(out.resolve("small"));
        Files.writeString(out.resolve("TRUTH.json"), json(truth) + "\n");

        Map<String, Object> newest = checkpoints.lastEntry().getValue();
        Files.write(out.resolve("small/_metadata"), Files.readAllBytes(root.resolve((String) newest.get("metadata"))));
        small.put("checkpoints", List.of(ofMetadata(newest)));
        Files.writeString(out.resolve("small/TRUTH.json"), json(small) + "\n");
        System.out.println(args[0] + ": checkpoints " + checkpoints.keySet() + ", metadata version " + newest.get("metadata_version") + ", "
                + keyedHandles + " keyed handles, " + files.size() + " files, " + bytes + " bytes, " + unreferenced + " unreferenced, missing "
                + missing.size());
    }

    private static Map<String, Object> checkpoint(Path file) throws Exception {
        byte[] bytes = Files.readAllBytes(file);
        String pointer = "file:" + file.getParent();
        CheckpointMetadata metadata = Checkpoints.loadCheckpointMetadata(
                new DataInputStream(new ByteArrayInputStream(bytes)), Truth.class.getClassLoader(), pointer);
        checkpoint = metadata.getCheckpointId();
        List<Object> masters = new ArrayList<>();
        for (MasterState state : metadata.getMasterStates()) {
            masters.add(map("name", state.name(), "version", state.version(), "sha256", sha256(state.bytes())));
        }
        List<Object> operators = new ArrayList<>();
        for (OperatorState operator : metadata.getOperatorStates()) {
            operators.add(operator(operator));
        }
        ByteBuffer head = ByteBuffer.wrap(bytes);
        Object properties = metadata.getCheckpointProperties() == null ? null
                : map("snapshot_type", String.valueOf(metadata.getCheckpointProperties().getCheckpointType()),
                        "is_savepoint", metadata.getCheckpointProperties().isSavepoint());
        Path name = root.relativize(file);
        return map("metadata", name.toString(), "job_id", name.getName(0).toString(), "magic", String.format("%08x", head.getInt()),
                "metadata_version", head.getInt(), "metadata_size", bytes.length, "metadata_sha256", sha256(bytes),
                "external_pointer", pointer, "checkpoint_id", checkpoint, "properties", properties, "master_states", masters,
                "operators", operators);
    }

    private static Map<String, Object> operator(OperatorState operator) throws Exception {
        List<Object> subtasks = new ArrayList<>();
        for (Map.Entry<Integer, OperatorSubtaskState> entry : new TreeMap<>(operator.getSubtaskStates()).entrySet()) {
            OperatorSubtaskState state = entry.getValue();
            subtasks.add(map("subtask", entry.getKey(), "finished", state.isFinished(), "state_size", state.getStateSize(),
                    "checkpointed_size", state.getCheckpointedSize(),
                    "managed_keyed", each(state.getManagedKeyedState(), Truth::keyed),
                    "raw_keyed", each(state.getRawKeyedState(), Truth::keyed),
                    "managed_operator", each(state.getManagedOperatorState(), handle -> operatorHandle(handle, true)),
                    "raw_operator", each(state.getRawOperatorState(), handle -> operatorHandle(handle, false)),
                    "input_channel_handles", each((Collection<? extends StateObject>) state.getInputChannelState(), Truth::channel),
                    "result_subpartition_handles", each((Collection<? extends StateObject>) state.getResultSubpartitionState(), Truth::channel)));
        }
        // 1.20 has no names and uids, nor the methods.
        return map("operator_id", operator.getOperatorID().toHexString(), "name", or(call(operator, "getOperatorName")),
                "uid", or(call(operator, "getOperatorUid")), "parallelism", operator.getParallelism(),
                "max_parallelism", operator.getMaxParallelism(), "fully_finished", operator.isFullyFinished(),
                "coordinator_state", stream(operator.getCoordinatorState()), "subtasks", subtasks);
    }

    private static Map<String, Object> keyed(KeyedStateHandle handle) throws Exception {
        Map<String, Object> said = map("class", handle.getClass().getSimpleName(), "key_group_range", range(handle.getKeyGroupRange()),
                "state_size", handle.getStateSize(), "state_handle_id", handle.getStateHandleId().getKeyString());
        keyedHandles++;
        if (handle instanceof IncrementalRemoteKeyedStateHandle) {
            IncrementalRemoteKeyedStateHandle incremental = (IncrementalRemoteKeyedStateHandle) handle;
            said.put("backend_identifier", incremental.getBackendIdentifier().toString());
            said.put("handle_checkpoint_id", incremental.getCheckpointId());
            said.put("checkpointed_size", incremental.getCheckpointedSize());
            said.put("shared_state", each(incremental.getSharedState(), Truth::local));
            said.put("private_state", each(incremental.getPrivateState(), Truth::local));
            said.put("meta_state_handle", stream(incremental.getMetaDataStateHandle()));
            said.put("keyed_backend_meta", keyedMeta(incremental.getMetaDataStateHandle()));
            rocksdb(incremental, said);
        } else if (handle instanceof KeyGroupsStateHandle) {
            KeyGroupsStateHandle groups = (KeyGroupsStateHandle) handle;
            List<Object> offsets = new ArrayList<>();
            groups.getGroupRangeOffsets().forEach(group -> offsets.add(group.f1));
            said.put("key_group_offsets", offsets);
            said.put("delegate", stream(groups.getDelegateStateHandle()));
        } else if (handle instanceof ChangelogStateBackendHandle) {
            ChangelogStateBackendHandle changelog = (ChangelogStateBackendHandle) handle;
            said.put("checkpointed_size", changelog.getCheckpointedSize());
            said.put("handle_checkpoint_id", changelog.getCheckpointId());
            said.put("materialization_id", changelog.getMaterializationID());
            said.put("materialized", each(changelog.getMaterializedStateHandles(), Truth::keyed));
            said.put("non_materialized", each(changelog.getNonMaterializedStateHandles(), Truth::keyed));
        } else if (handle instanceof ChangelogStateHandleStreamImpl) {
            ChangelogStateHandleStreamImpl changes = (ChangelogStateHandleStreamImpl) handle;
            said.put("checkpointed_size", changes.getCheckpointedSize());
            said.put("storage_id", changes.getStorageIdentifier());
            List<Object> parts = new ArrayList<>();
            for (Tuple2<StreamStateHandle, Long> part : changes.getHandlesAndOffsets()) {
                Map<String, Object> at = map("offset", part.f1);
                at.putAll(stream(part.f0));
                parts.add(at);
            }
            said.put("handles", parts);
        } else if (handle instanceof InMemoryChangelogStateHandle) {
            InMemoryChangelogStateHandle changes = (InMemoryChangelogStateHandle) handle;
            said.put("from", changes.getFrom());
            said.put("to", changes.getTo());
            List<Object> each = new ArrayList<>();
            for (StateChange change : changes.getChanges()) {
                each.add(map("key_group", change.getKeyGroup(), "size", change.getChange().length, "sha256", sha256(change.getChange())));
            }
            said.put("changes", each);
        }
        return said;
    }

    private static Map<String, Object> local(HandleAndLocalPath file) throws Exception {
        Map<String, Object> said = map("local_path", file.getLocalPath());
        said.putAll(stream(file.getHandle()));
        return said;
    }

    /** Builds the database from its files and reads every row; the merge operator is the one that Flink sets. */
    private static void rocksdb(IncrementalRemoteKeyedStateHandle handle, Map<String, Object> said) throws Exception {
        Path directory = Files.createTempDirectory(work, "db");
        List<HandleAndLocalPath> files = new ArrayList<>(handle.getSharedState());
        files.addAll(handle.getPrivateState());
        try {
            for (HandleAndLocalPath file : files) {
                Files.write(directory.resolve(file.getLocalPath()), read(file.getHandle()));
            }
        } catch (java.io.IOException gone) {
            said.put("rocksdb_error", String.valueOf(gone));
            return;
        }
        List<ColumnFamilyDescriptor> families = new ArrayList<>();
        List<ColumnFamilyHandle> opened = new ArrayList<>();
        try (Options options = new Options();
                DBOptions dbOptions = new DBOptions();
                ColumnFamilyOptions familyOptions = new ColumnFamilyOptions().setMergeOperatorName("stringappendtest")) {
            for (byte[] family : RocksDB.listColumnFamilies(options, directory.toString())) {
                families.add(new ColumnFamilyDescriptor(family, familyOptions));
            }
            Map<String, Object> rows = new LinkedHashMap<>();
            Map<String, Object> samples = new LinkedHashMap<>();
            try (RocksDB db = RocksDB.openReadOnly(dbOptions, directory.toString(), families, opened)) {
                for (ColumnFamilyHandle family : opened) {
                    String name = new String(family.getName(), StandardCharsets.UTF_8);
                    family(db, family, name, rows, samples);
                    family.close();
                }
            }
            said.put("rocksdb", rows);
            said.put("sample_rows", samples);
        }
    }

    private static void family(RocksDB db, ColumnFamilyHandle family, String name, Map<String, Object> rows, Map<String, Object> samples)
            throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        long entries = 0;
        long keyBytes = 0;
        long valueBytes = 0;
        byte[] first = null;
        byte[] last = null;
        List<Object> some = new ArrayList<>();
        try (RocksIterator at = db.newIterator(family)) {
            for (at.seekToFirst(); at.isValid(); at.next()) {
                byte[] key = at.key();
                byte[] value = at.value();
                for (byte[] part : new byte[][] {key, value}) {
                    digest.update(ByteBuffer.allocate(4).putInt(part.length).array());
                    digest.update(part);
                }
                if (entries++ < 3) {
                    some.add(map("key_hex", hex(key), "value_hex", value.length > 128 ? null : hex(value), "value_sha256", sha256(value)));
                }
                keyBytes += key.length;
                valueBytes += value.length;
                first = first == null ? key : first;
                last = key;
            }
            at.status();
        }
        rows.put(name, map("entries", entries, "key_bytes", keyBytes, "value_bytes", valueBytes, "first_key", hex(first), "last_key", hex(last),
                "kv_sha256", hex(digest.digest())));
        if (!some.isEmpty()) {
            samples.put(name, some);
        }
    }

    private static Map<String, Object> operatorHandle(OperatorStateHandle handle, boolean managed) throws Exception {
        Map<String, Object> partitions = new LinkedHashMap<>();
        handle.getStateNameToPartitionOffsets().forEach((name, at) -> partitions.put(name,
                map("mode", at.getDistributionMode().name(), "offsets", Arrays.stream(at.getOffsets()).boxed().collect(Collectors.toList()))));
        Map<String, Object> said = map("class", handle.getClass().getSimpleName(), "state_size", handle.getStateSize(), "partitions", partitions,
                "delegate", stream(handle.getDelegateStateHandle()));
        for (String[] merged : new String[][] {{"task_owned_dir", "getTaskOwnedDirHandle"}, {"shared_dir", "getSharedDirHandle"}}) {
            Object directory = call(handle, merged[1]);
            if (directory != null) {
                org.apache.flink.core.fs.Path path = (org.apache.flink.core.fs.Path) call(directory, "getDirectory");
                said.put(merged[0], map("class", directory.getClass().getSimpleName(), "directory", path.toString(), "in_tree", inTree(path)));
            }
        }
        if (managed && handle.getStateSize() > 0) {
            OperatorBackendSerializationProxy proxy = new OperatorBackendSerializationProxy(Truth.class.getClassLoader());
            proxy.read(new DataInputViewStreamWrapper(new ByteArrayInputStream(read(handle.getDelegateStateHandle()))));
            said.put("operator_backend_meta", map("version", proxy.getReadVersion(),
                    "operator_states", each(proxy.getOperatorStateMetaInfoSnapshots(), Truth::state),
                    "broadcast_states", each(proxy.getBroadcastStateMetaInfoSnapshots(), Truth::state)));
        }
        return said;
    }

    private static Map<String, Object> keyedMeta(StreamStateHandle handle) throws Exception {
        KeyedBackendSerializationProxy<?> proxy = new KeyedBackendSerializationProxy<>(Truth.class.getClassLoader());
        proxy.read(new DataInputViewStreamWrapper(new ByteArrayInputStream(read(handle))));
        return map("version", proxy.getReadVersion(), "key_serializer", proxy.getKeySerializerSnapshot().restoreSerializer().getClass().getName(),
                "key_group_compression", proxy.isUsingKeyGroupCompression(), "states", each(proxy.getStateMetaInfoSnapshots(), Truth::state));
    }

    private static Map<String, Object> state(StateMetaInfoSnapshot state) {
        Map<String, Object> serializers = new LinkedHashMap<>();
        state.getSerializerSnapshotsImmutable().forEach((name, snapshot) -> serializers.put(name,
                map("snapshot", snapshot.getClass().getName(), "version", snapshot.getCurrentVersion(),
                        "serializer", snapshot.restoreSerializer().getClass().getName())));
        return map("name", state.getName(), "backend_state_type", state.getBackendStateType().name(),
                "options", new LinkedHashMap<String, Object>(state.getOptionsImmutable()), "serializers", serializers);
    }

    /** In-flight data; 2.x merges the channels of a subtask into one handle, which 1.20 has no class for. */
    private static Map<String, Object> channel(StateObject handle) throws Exception {
        Map<String, Object> said = map("class", handle.getClass().getSimpleName());
        if (handle instanceof AbstractChannelStateHandle) {
            AbstractChannelStateHandle<?> plain = (AbstractChannelStateHandle<?>) handle;
            said.put("subtask", plain.getSubtaskIndex());
            if (plain.getInfo() instanceof InputChannelInfo) {
                InputChannelInfo info = (InputChannelInfo) plain.getInfo();
                said.put("gate", info.getGateIdx());
                said.put("channel", info.getInputChannelIdx());
            } else {
                ResultSubpartitionInfo info = (ResultSubpartitionInfo) plain.getInfo();
                said.put("partition", info.getPartitionIdx());
                said.put("subpartition", info.getSubPartitionIdx());
            }
            said.put("state_size", plain.getStateSize());
            said.put("offsets", plain.getOffsets());
            said.put("delegate", stream(plain.getDelegate()));
        } else {
            said.put("subtask", call(handle, "getSubtaskIndex"));
            said.put("state_size", handle.getStateSize());
            said.put("channel_offsets_hex", hex((byte[]) call(handle, "getSerializedChannelOffsets")));
            said.put("delegate", stream((StreamStateHandle) call(handle, "getDelegate")));
            List<Object> channels = new ArrayList<>();
            for (Object plain : (Collection<?>) call(handle, "getUnmergedHandles")) {
                Map<String, Object> one = channel((StateObject) plain);
                one.remove("delegate");
                channels.add(one);
            }
            said.put("channels", channels);
        }
        return said;
    }

    private static Map<String, Object> stream(StreamStateHandle handle) throws Exception {
        if (handle == null) {
            return null;
        }
        Map<String, Object> said = map("class", handle.getClass().getSimpleName());
        org.apache.flink.core.fs.Path path = null;
        if (handle instanceof RelativeFileStateHandle) {
            said.put("relative_path", ((RelativeFileStateHandle) handle).getRelativePath());
        }
        if (handle instanceof FileStateHandle) {
            path = ((FileStateHandle) handle).getFilePath();
            said.put("path", path.toString());
        } else if (handle.getClass().getSimpleName().equals("EmptySegmentFileStateHandle")) {
            // 2.x's word for: there is nothing; it has no path and refuses to be read.
            said.put("size", 0);
            return said;
        } else if (handle instanceof SegmentFileStateHandle) {
            SegmentFileStateHandle segment = (SegmentFileStateHandle) handle;
            path = segment.getFilePath();
            said.put("path", path.toString());
            said.put("start", segment.getStartPos());
            said.put("scope", segment.getScope().name());
            said.put("logical_id", segment.getLogicalFileId().toString());
        } else if (handle instanceof ByteStreamStateHandle) {
            said.put("handle_name", ((ByteStreamStateHandle) handle).getHandleName());
        }
        said.put("size", handle.getStateSize());
        try {
            byte[] bytes = read(handle);
            said.put("read_bytes", bytes.length);
            said.put("sha256", sha256(bytes));
            if (path == null && bytes.length <= 64) {
                said.put("bytes_hex", hex(bytes));
            }
        } catch (java.io.IOException gone) {
            said.put("read_error", String.valueOf(gone));
            said.put("missing", true);
            missing.add(String.valueOf(inTree(path) == null ? path : inTree(path)));
        }
        if (path != null) {
            String inTree = inTree(path);
            said.put("in_tree", inTree);
            if (inTree != null) {
                used.computeIfAbsent(inTree, name -> new TreeSet<>()).add(checkpoint);
            }
        }
        return said;
    }

    private static String inTree(org.apache.flink.core.fs.Path path) {
        Path real = Path.of(path.toUri().getPath());
        return real.startsWith(root) ? root.relativize(real).toString() : null;
    }

    /**
     * To the end of the stream, not to the size that the handle says: files of changes are longer. A segment's stream answers -1 to an empty
     * read, so that readAllBytes would stop early.
     */
    private static byte[] read(StreamStateHandle handle) throws Exception {
        ByteArrayOutputStream whole = new ByteArrayOutputStream();
        try (InputStream in = handle.openInputStream()) {
            byte[] part = new byte[1 << 16];
            for (int got; (got = in.read(part)) > 0; ) {
                whole.write(part, 0, got);
            }
        }
        return whole.toByteArray();
    }

    private interface Say<T> {
        Object of(T it) throws Exception;
    }

    private static <T> List<Object> each(Collection<? extends T> all, Say<T> say) {
        List<Object> said = new ArrayList<>();
        for (T it : all) {
            try {
                said.add(say.of(it));
            } catch (Exception e) {
                throw new RuntimeException(String.valueOf(it), e);
            }
        }
        return said;
    }

    /** A method that is not public, or that only some versions have. */
    private static Object call(Object on, String method) throws Exception {
        for (Class<?> type = on.getClass(); type != null; type = type.getSuperclass()) {
            for (Method each : type.getDeclaredMethods()) {
                if (each.getName().equals(method) && each.getParameterCount() == 0) {
                    each.setAccessible(true);
                    return each.invoke(on);
                }
            }
        }
        return null;
    }

    private static Object or(Object optional) {
        return optional == null ? null : ((Optional<?>) optional).orElse(null);
    }

    private static List<Object> range(KeyGroupRange range) {
        return List.of(range.getStartKeyGroup(), range.getEndKeyGroup());
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    private static String sha256(byte[] bytes) throws Exception {
        return hex(MessageDigest.getInstance("SHA-256").digest(bytes));
    }

    private static Map<String, Object> map(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put((String) pairs[i], pairs[i + 1]);
        }
        return map;
    }

    /** What `_metadata` says by itself, without the files that it names. */
    private static Object ofMetadata(Object from) {
        if (from instanceof Map) {
            Map<?, ?> whole = (Map<?, ?>) from;
            Map<String, Object> less = new LinkedHashMap<>();
            whole.forEach((name, value) -> {
                boolean byFile = OF_FILES.contains(name) || whole.containsKey("path") && name.equals("sha256");
                if (!byFile) {
                    less.put((String) name, ofMetadata(value));
                }
            });
            return less;
        }
        return from instanceof List ? ((List<?>) from).stream().map(Truth::ofMetadata).collect(Collectors.toList()) : from;
    }

    private static String json(Object value) {
        if (value instanceof Map) {
            return ((Map<?, ?>) value).entrySet().stream().map(e -> json(e.getKey()) + ": " + json(e.getValue())).collect(Collectors.joining(", ", "{", "}"));
        }
        if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(Truth::json).collect(Collectors.joining(", ", "[", "]"));
        }
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toString().toCharArray()) {
            text.append(c == '"' || c == '\\' ? "\\" + c : c < ' ' || c > '~' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return text.append('"').toString();
    }
}
