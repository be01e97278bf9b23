#!/bin/sh
# Real Flink beside ckptfs: outside the tests, since it downloads 300 MB a version and takes minutes.
#   scripts/flink.sh install [VERSION...]    Flink from PyPI (2.3, 1.20; also 2.0) and Java 17, and the jobs of scripts/flink compiled for it
#   scripts/flink.sh check [VERSION...]      a job is followed for 20 checkpoints by `ckptfs import flink --follow` and cancelled; its own
#                                            directory is deleted; it goes on from the mount, with as many subtasks as before and with more;
#                                            what it counts in the end is what an undisturbed run counts. Default: 2.3 and 1.20
#   scripts/flink.sh check --once ...            the same with one import at the end, of the three checkpoints that Flink keeps
#   scripts/flink.sh check --without-ckptfs ...  the same with a copy put back in the place of what was deleted. Tries this script
#   scripts/flink.sh fixtures OUT [KIND...]  checkpoints of rarer kinds, each as OUT/KIND/tree with what Flink itself reads in it (TRUTH.json)
#   scripts/flink.sh run VERSION DIR [OPTIONS OF THE JOB]   such a job, with its checkpoints below DIR/checkpoints, until Ctrl-C
# FLINK_DIR: where Flink and the runs are (default: target/flink). CKPTFS: the program (default: the release build).
# FLINK_EVENTS, FLINK_CHECKPOINTS: how long a check is (100000 events, 20 checkpoints).
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
FLINK_DIR=${FLINK_DIR:-$root/target/flink}
mkdir -p "$FLINK_DIR"
FLINK_DIR=$(cd "$FLINK_DIR" && pwd)
events=${FLINK_EVENTS:-100000}
wanted=${FLINK_CHECKPOINTS:-20}

die() {
	echo "scripts/flink.sh: $*" >&2
	exit 1
}

say() { echo "$(date +%T) $*"; }

# The release of a version that was asked for, always the same one.
release() {
	case $1 in
	2.3 | 2.3.0) echo 2.3.0 ;;
	2.0 | 2.0.2) echo 2.0.2 ;;
	1.20 | 1.20.5) echo 1.20.5 ;;
	*) die "Flink $1 is not known here: 2.3, 2.0 or 1.20" ;;
	esac
}

java17() {
	javac --release 17 -version >/dev/null 2>&1 && return
	command -v apt-get >/dev/null || die "javac 17 is not there: install a JDK, 17 or newer"
	sudo=
	[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
	{ $sudo apt-get -q update && $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install openjdk-17-jdk-headless; } \
		>"$FLINK_DIR/apt.log" 2>&1 </dev/null || die "javac 17 is not there and could not be installed: apt-get install openjdk-17-jdk-headless (see $FLINK_DIR/apt.log)"
}

# install RELEASE: its jars into $FLINK_DIR/RELEASE/lib, the jobs into $FLINK_DIR/RELEASE/jobs.jar.
install() {
	release=$(release "$1")
	home=$FLINK_DIR/$release
	java17
	if [ ! -d "$home/lib" ]; then
		# Downloads, all or nothing: what is there is complete.
		get=$FLINK_DIR/get-$release.$$
		rm -rf "$get"
		mkdir -p "$get"
		[ -x "$FLINK_DIR/python/bin/pip" ] || python3 -m venv "$FLINK_DIR/python"
		"$FLINK_DIR/python/bin/pip" download -q --disable-pip-version-check --no-deps -d "$get" "apache-flink-libraries==$release" ||
			die "apache-flink-libraries $release could not be downloaded"
		case $(ls "$get") in
		*.whl) python3 -m zipfile -e "$get"/*.whl "$get/all" && mv "$get/all/pyflink/lib" "$get/lib" ;;
		*) mkdir "$get/all" && tar -xzf "$get"/*.tar.gz -C "$get/all" --strip-components=1 && mv "$get/all/deps/lib" "$get/lib" ;;
		esac
		[ -f "$get/lib/flink-dist-$release.jar" ] || die "no flink-dist-$release.jar in apache-flink-libraries $release"
		mkdir -p "$home"
		mv "$get/lib" "$home/lib"
		rm -rf "$get"
	fi
	sum=$(cat scripts/flink/*.java | cksum)
	if [ "$(cat "$home/jobs.sum" 2>/dev/null)" != "$sum" ]; then
		rm -rf "$home/classes"
		mkdir "$home/classes"
		javac --release 17 -proc:none -nowarn -cp "$home/lib/*" -d "$home/classes" scripts/flink/*.java
		jar --create --file "$home/jobs.jar" -C "$home/classes" .
		echo "$sum" >"$home/jobs.sum"
	fi
	echo "Flink $release, $(java -version 2>&1 | head -n 1), $home"
}

# --- one cluster at a time: a JobManager and a TaskManager on loopback, in $work

jobmanager= taskmanager= follower= mounted= work= spill= shown=0
clean() {
	for pid in $follower $taskmanager $jobmanager; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	follower= taskmanager= jobmanager=
	[ -z "$mounted" ] || "$CKPTFS" umount --lazy "$mounted" || true
	mounted=
	[ -z "$spill" ] || rm -rf "$spill"
}
trap clean EXIT
trap 'exit 130' INT TERM

# What Java 17 has to open for Flink, as in the configuration that Flink brings along.
opens=
for package in lang net io nio lang.reflect text time util util.concurrent util.concurrent.atomic util.concurrent.locks; do
	opens="$opens --add-opens=java.base/java.$package=ALL-UNNAMED"
done
opens="$opens --add-exports=java.base/sun.net.util=ALL-UNNAMED --add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED"

# java_of NAME MEMORY CLASS ARGUMENTS...: a Java of this cluster, with a log of its own.
java_of() {
	name=$1 memory=$2
	shift 2
	# shellcheck disable=SC2086
	exec nice java $opens "-Xmx$memory" -XX:MaxMetaspaceSize=256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Dlog.file=$work/log/$name.log" \
		"-Dlog4j.configurationFile=$work/conf/log4j.properties" -cp "$home/lib/*" "$@"
}

flink() { (cd "$work" && FLINK_CONF_DIR=$work/conf java_of client 256m org.apache.flink.client.cli.CliFrontend "$@"); }

# rest PATH FIELD...: what the JobManager answers, or nothing.
rest() {
	path=$1
	shift
	python3 - "http://127.0.0.1:$port$path" "$@" <<'PY' 2>/dev/null || true
import json, sys, urllib.request
at = json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=10))
for field in sys.argv[2:]:
    at = at[field]
print(at)
PY
}

# await SECONDS WHAT COMMAND...: until the command is true. A dead cluster ends it.
await() {
	seconds=$1 what=$2
	shift 2
	end=$(($(date +%s) + seconds))
	until "$@"; do
		for pid in $jobmanager $taskmanager; do kill -0 "$pid" 2>/dev/null || die "Flink died while waiting for $what; see $work/log"; done
		[ "$(date +%s)" -lt "$end" ] || die "no $what in $seconds s; see $work/log"
		sleep 0.3
	done
}

registered() { [ "$(rest /overview taskmanagers)" = 1 ]; }
is() {
	state=$(rest "/jobs/$1" state)
	[ "$state" != FAILED ] || [ "$2" = FAILED ] || die "the job failed: $(rest "/jobs/$1/exceptions" root-exception | head -n 20)"
	[ "$state" = "$2" ]
}
completed() {
	is "$1" RUNNING || [ "$state" = CREATED ] || [ "$state" = "" ] || die "the job is $state after $(rest "/jobs/$1/checkpoints" counts completed) checkpoints: give it more events"
	done_=$(rest "/jobs/$1/checkpoints" counts completed)
	[ "${done_:-0}" -ge "$2" ]
}

# start VERSION WORK [LINES OF THE CONFIGURATION]...
start() {
	home=$FLINK_DIR/$(release "$1") work=$2
	shift 2
	mkdir -p "$work/conf" "$work/log" "$work/checkpoints"
	# A long path here and RocksDB cannot name its log: "File name too long" when a restore changes the parallelism.
	spill=$(mktemp -d --suffix=.fk)
	ports=$(python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))')
	port=${ports% *}
	cat >"$work/conf/config.yaml" <<YAML
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: ${ports#* }
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: $port
rest.bind-port: $port
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: 4
taskmanager.cpu.cores: 2
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.task.heap.size: 512m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
taskmanager.memory.managed.size: 512m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 128m
taskmanager.memory.jvm-overhead.max: 128m
execution.target: remote
io.tmp.dirs: $spill
restart-strategy.type: none
state.backend.type: rocksdb
execution.checkpointing.interval: 1500ms
execution.checkpointing.incremental: true
execution.checkpointing.num-retained: 3
execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION
execution.checkpointing.dir: file://$work/checkpoints
execution.checkpointing.savepoint-dir: file://$work/savepoints
YAML
	for line; do echo "$line"; done >>"$work/conf/config.yaml"
	cat >"$work/conf/log4j.properties" <<'LOG'
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
appender.file.name = file
appender.file.type = File
appender.file.fileName = ${sys:log.file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %-5p %c{1} %m%n
LOG
	(cd "$work" && java_of jobmanager 512m org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint --configDir "$work/conf") \
		>"$work/log/jobmanager.out" 2>&1 </dev/null &
	jobmanager=$!
	(cd "$work" && java_of taskmanager 1g org.apache.flink.runtime.taskexecutor.TaskManagerRunner --configDir "$work/conf") \
		>"$work/log/taskmanager.out" 2>&1 </dev/null &
	taskmanager=$!
	await 120 TaskManager registered
}

# submit CLASS PARALLELISM FROM ARGUMENTS...: the job is $job. FROM: a checkpoint, or nothing.
submit() {
	class=$1 parallelism=$2 from=$3
	shift 3
	flink run -d -p "$parallelism" ${from:+-s "$from"} -c "$class" "$home/jobs.jar" "$@" >"$work/log/submit.out" 2>&1 ||
		die "the job was not accepted: $(grep -m 5 -i 'exception\|caused' "$work/log/submit.out")"
	job=$(sed -n 's/.*submitted with JobID \([0-9a-f]*\).*/\1/p' "$work/log/submit.out")
	[ -n "$job" ] || die "no JobID in $work/log/submit.out"
}

cancel() {
	flink cancel "$1" >"$work/log/cancel.out" 2>&1 || die "the job was not cancelled: see $work/log/cancel.out"
	await 60 "end of the job" is "$1" CANCELED
}

# The lines that a job wrote, in one order; what each subtask says of itself is summed up.
result() {
	find "$1" -name 'part-*' -exec cat {} + | awk '
		$2 == "seen" { seen[$1] += $3; next }
		{ print }
		END { for (name in seen) print name, "seen", seen[name] }' | LC_ALL=C sort
}

newest() { ls "$1" | sed -n 's/^chk-\([0-9]*\)$/\1/p' | sort -n | tail -n 1; }
mount_it() {
	mkdir -p "$work/mnt"
	"$CKPTFS" mount --daemon "$work/mnt"
	mounted=$work/mnt
}
followed() {
	is "$job" RUNNING || die "the job is $state after $shown checkpoints on the mount: give it more events (see $work/log/follow.out)"
	kill -0 "$follower" 2>/dev/null || die "import --follow ended by itself: $(tail -n 5 "$work/log/follow.out")"
	shown=$(ls "$mounted/audit" 2>/dev/null | grep -c '^chk-[0-9]*$')
	[ "$shown" -ge "$1" ]
}

# go_on PARALLELISM FROM: the job goes on from there to its end, and counts what the undisturbed one counted.
go_on() {
	out=$work/out-$1
	submit AuditJob "$1" "$2" $shape --rate 1000000 --out "file://$out"
	await 1200 "end of the restored job" is "$job" FINISHED
	restored=$(rest "/jobs/$job/checkpoints" latest restored id)
	# A job that starts anew counts the same.
	[ "$restored" = "$n" ] || die "the job went on from '$restored', not from checkpoint $n: $2"
	result "$out" >"$work/result-$1"
	if ! cmp -s "$work/result-A" "$work/result-$1"; then
		diff "$work/result-A" "$work/result-$1" | head -n 6 >&2
		die "Flink $version, restored from chk-$restored with $1 subtasks: other counts than the undisturbed run (<), see $work/result-*"
	fi
	say "restored from checkpoint $restored with $1 subtasks: equal, $(wc -l <"$work/result-$1") lines"
}

check() {
	with=follow
	case ${1:-} in
	--once) with=once ;;
	--without-ckptfs) with= ;;
	esac
	case ${1:-} in --*) shift ;; esac
	[ $# -gt 0 ] || set -- 2.3 1.20
	if [ -n "$with" ] && [ -z "${CKPTFS:-}" ]; then
		cargo build --release --quiet
		CKPTFS=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/ckptfs
	fi
	for version; do
		install "$version"
		rm -rf --one-file-system "$FLINK_DIR/check-$version"
		start "$version" "$FLINK_DIR/check-$version"
		shape="--events $events --keys 2000 --payload 2000 --partitions 2"

		submit AuditJob 2 "" $shape --rate 1000000 --out "file://$work/out-A"
		await 1200 "end of the undisturbed job" is "$job" FINISHED
		result "$work/out-A" >"$work/result-A"
		# A comparison of nothing with nothing would be equal, too.
		grep -qx "main seen $events" "$work/result-A" || die "the undisturbed run did not see its $events events: $work/result-A"
		say "undisturbed: $(wc -l <"$work/result-A") lines, $(grep seen "$work/result-A")"

		# Ten seconds for each checkpoint, so that a busy machine gets there before the events are at their end.
		submit AuditJob 2 "" $shape --rate "$((events / (10 * wanted)))" --out "file://$work/out-B"
		checkpoints=$work/checkpoints/$job
		await 60 "directory of the job" test -d "$checkpoints"
		export CKPTFS_STORE="file://$work/store" CKPTFS_CACHE="$work/cache"
		if [ "$with" = follow ]; then
			"$CKPTFS" import flink "$checkpoints" --job audit --follow >"$work/log/follow.out" 2>&1 &
			follower=$!
			# There is nothing to mount before.
			await 120 "first import (see $work/log/follow.out)" test -e "$work/store/ckptfs.json"
			mount_it
		fi
		await 900 "checkpoint $wanted" completed "$job" "$wanted"
		# Should it have missed one, one more.
		if [ "$with" = follow ]; then await 300 "$wanted checkpoints on the mount (see $work/log/follow.out)" followed "$wanted"; fi
		cancel "$job"
		made=$(rest "/jobs/$job/checkpoints" counts completed)
		if [ "$with" = follow ]; then
			kill "$follower"
			wait "$follower" || true
			follower=
		elif [ "$with" = once ]; then
			"$CKPTFS" import flink "$checkpoints" --job audit >"$work/log/import.out" 2>&1 || die "import flink failed: $(tail -n 5 "$work/log/import.out")"
			mount_it
		fi
		if [ -n "$with" ]; then
			rm -rf "$work/checkpoints"
			n=$(newest "$mounted/audit")
			[ -n "$n" ] || die "no checkpoint on the mount: $mounted/audit"
			say "cancelled and deleted after $made checkpoints; on the mount: $(ls "$mounted/audit" | grep -c '^chk-[0-9]*$'), the newest $n"
			from=file://$mounted/audit/chk-$n/flink
		else
			n=$(newest "$checkpoints")
			cp -a "$checkpoints" "$work/copy"
			rm -rf "$work/checkpoints"
			# Flink's own directory names its files by absolute paths, so the copy has to go where it was.
			mkdir -p "$work/checkpoints"
			mv "$work/copy" "$checkpoints"
			say "cancelled, deleted and put back after $made checkpoints; the newest is $n"
			from=file://$checkpoints/chk-$n
		fi
		go_on 2 "$from"
		go_on 3 "$from"
		say "Flink $version: equal"
		clean
		rm -rf --one-file-system "$work"
	done
}

# fixture KIND VERSION CHECKPOINTS CLASS ARGUMENTS [LINES OF THE CONFIGURATION]...: a job until so many checkpoints, once more where it
# is restored with three subtasks (RESTORE=yes), and what Flink reads in what it left.
fixture() {
	kind=$1 version=$2 number=$3 class=$4 arguments=$5
	shift 5
	install "$version" >/dev/null
	rm -rf --one-file-system "$FLINK_DIR/fixture-$kind"
	start "$version" "$FLINK_DIR/fixture-$kind" "$@"
	rm -rf "${out:?}/$kind"
	mkdir -p "$out/$kind"
	# shellcheck disable=SC2086
	submit "$class" 2 "" $arguments
	await 300 "checkpoint $number" completed "$job" "$number"
	cancel "$job"
	if [ -n "${RESTORE:-}" ]; then
		first=$job
		n=$(newest "$work/checkpoints/$job")
		# shellcheck disable=SC2086
		submit "$class" 3 "file://$work/checkpoints/$job/chk-$n" $arguments
		await 300 "checkpoints after the restore" completed "$job" 3
		cancel "$job"
		rm -rf "$work/checkpoints/$first"
	fi
	# shellcheck disable=SC2086
	nice java $opens -Xmx512m "-Dlog4j.configurationFile=$work/conf/log4j.properties" "-Dlog.file=$work/log/truth.log" -cp "$home/jobs.jar:$home/lib/*" \
		Truth "$kind" "$(release "$version")" "$work/checkpoints" "$spill" "$out/$kind"
	cp -a "$work/checkpoints" "$out/$kind/tree"
	clean
	rm -rf --one-file-system "$work"
}

fixtures() {
	[ $# -ge 1 ] || die "fixtures: into which directory?"
	mkdir -p "$1"
	out=$(cd "$1" && pwd)
	shift
	audit="--keys 60 --payload 300 --rate 400 --events 1000000"
	files="execution.checkpointing.data-inline-threshold: 0b"
	small="state.backend.rocksdb.writebuffer.size: 64kb"
	for kind in ${*:-v5 incremental-1.20 changelog changelog-memory changelog-1.20 raw raw-1.20 finished finished-1.20 unaligned unaligned-1.20}; do
		case $kind in
		*-1.20) version=1.20 ;;
		v5) version=2.0 ;;
		*) version=2.3 ;;
		esac
		# The job needs a place for its result, though none of these gets that far.
		audit_out="--out file://$FLINK_DIR/fixture-$kind/out"
		case $kind in
		incremental*)
			fixture "$kind" "$version" 5 AuditJob "$audit $audit_out" "$files" "$small"
			;;
		changelog-memory)
			# The changes themselves are in the metadata, so there are few.
			fixture "$kind" "$version" 5 AuditJob "--keys 20 --payload 50 --rate 30 --events 1000000 $audit_out" "$files" "state.changelog.enabled: true" \
				"state.changelog.storage: memory" "state.changelog.periodic-materialize.interval: 4s"
			;;
		changelog*)
			# Materialized often, so that a checkpoint has both: a RocksDB and changes after it.
			fixture "$kind" "$version" 8 AuditJob "$audit $audit_out" "$files" "$small" "state.changelog.enabled: true" "state.changelog.storage: filesystem" \
				"state.changelog.dstl.dfs.base-path: file://$FLINK_DIR/fixture-$kind/checkpoints" "state.changelog.periodic-materialize.interval: 4s"
			;;
		raw*) RESTORE=yes fixture "$kind" "$version" 3 RawStateJob "" "$files" ;;
		finished*)
			# The short source is at its end when the first checkpoint is taken; with three subtasks and two splits, a reader of the main one is, too.
			RESTORE=yes fixture "$kind" "$version" 3 AuditJob "$audit --short 600 $audit_out" "$files" "$small"
			;;
		v5 | unaligned*)
			# An operator that is slower than its source, and small buffers, so that little is in flight.
			fixture "$kind" "$version" 3 AuditJob "--keys 60 --payload 300 --rate 5000 --events 1000000 --slow 2000 $audit_out" "$files" \
				"execution.checkpointing.unaligned.enabled: true" "taskmanager.memory.segment-size: 4kb"
			;;
		*) die "fixtures: no kind $kind" ;;
		esac
	done
}

# run VERSION DIR [OPTIONS OF THE JOB]
run() {
	[ $# -ge 2 ] || die "run: which version, and into which directory?"
	[ -z "$(ls -A "$2" 2>/dev/null)" ] || die "$2 is not empty"
	install "$1"
	version=$1
	mkdir -p "$2"
	into=$(cd "$2" && pwd)
	shift 2
	start "$version" "$into"
	submit AuditJob 2 "" --events 100000000 --out "file://$work/out" "$@"
	echo "job $job: $work/checkpoints/$job, web page http://127.0.0.1:$port; Ctrl-C ends it"
	wait "$jobmanager"
}

verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
install)
	[ $# -gt 0 ] || set -- 2.3 1.20
	for version; do install "$version"; done
	;;
check) check "$@" ;;
fixtures) fixtures "$@" ;;
run) run "$@" ;;
*) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
