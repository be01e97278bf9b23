import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job that can be audited: numbered events, keyed state of every kind, and one line per key at the end, which depends on the
 * events alone: not on their order, the rate, the parallelism, or how often the job was stopped and restored. A lost or repeated
 * event, a lost timer and a wrong row of any state change it.
 *
 * <pre>--out DIR --events N --partitions P --keys K --payload BYTES --rate EVENTS/S [--slow MICROSECONDS] [--short N]</pre>
 *
 * --slow: what each event costs the operator (for backpressure). --short: events of a second source with its own operator, both
 * of which end while the first go on.
 */
public class AuditJob {
    private static final long WINDOW = 50;

    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            options.put(args[i], args[i + 1]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        DataStream<String> lines = audited(env, "main", number(options, "--events", 200_000), number(options, "--rate", 2000), options);
        if (options.containsKey("--short")) {
            lines = lines.union(audited(env, "short", number(options, "--short", 0), 1_000_000, options));
        }
        lines.sinkTo(FileSink.forRowFormat(new Path(options.get("--out")), new SimpleStringEncoder<String>()).build())
                .name("sink").uid("sink").setParallelism(1);
        env.execute("audit");
    }

    private static long number(Map<String, String> options, String name, long otherwise) {
        return Long.parseLong(options.getOrDefault(name, Long.toString(otherwise)));
    }

    /** Events (partition, offset, key) in, one line per key out. */
    private static DataStream<String> audited(StreamExecutionEnvironment env, String name, long events, long rate, Map<String, String> options) {
        long partitions = number(options, "--partitions", 2);
        long keys = number(options, "--keys", 2000);
        long inEach = events / partitions;
        TypeInformation<Tuple3<Long, Long, Long>> event = Types.TUPLE(Types.LONG, Types.LONG, Types.LONG);
        GeneratorFunction<Long, Tuple3<Long, Long, Long>> number =
                n -> Tuple3.of(n / inEach, n % inEach, Math.floorMod(n * 0x9E3779B97F4A7C15L >>> 17, keys));
        return env.fromSource(
                        new DataGeneratorSource<>(number, inEach * partitions, RateLimiterStrategy.perSecond(rate), event),
                        WatermarkStrategy.<Tuple3<Long, Long, Long>>forMonotonousTimestamps().withTimestampAssigner((e, t) -> e.f1),
                        name + "-source")
                .uid(name + "-source")
                .keyBy(e -> e.f2, Types.LONG)
                .process(new Audit(name, (int) number(options, "--payload", 500), number(options, "--slow", 0)))
                .name(name + "-audit").uid(name + "-audit");
    }

    static class Audit extends KeyedProcessFunction<Long, Tuple3<Long, Long, Long>, String> implements CheckpointedFunction {
        private final String name;
        private final int payload;
        private final long slow;

        private transient ValueState<Long> count;
        private transient ValueState<Long> newest;
        private transient ValueState<byte[]> blob;
        private transient ListState<Long> recent;
        private transient ValueState<Long> folded;
        private transient MapState<String, Long> perPartition;
        private transient MapState<Long, Long> windows;
        private transient ValueState<Long> fired;
        private transient ListState<Long> seenBefore;
        private transient long seen;
        private transient boolean seenTold;

        Audit(String name, int payload, long slow) {
            this.name = name;
            this.payload = payload;
            this.slow = slow;
        }

        @Override
        public void open(OpenContext context) {
            count = value("count", Types.LONG);
            // Lives longer than any run, so that it has a time stamp in its rows and changes nothing else.
            ValueStateDescriptor<Long> aging = new ValueStateDescriptor<>("newest", Types.LONG);
            aging.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofDays(7)).build());
            newest = getRuntimeContext().getState(aging);
            blob = value("blob", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);
            recent = getRuntimeContext().getListState(new ListStateDescriptor<>("recent", Types.LONG));
            folded = value("folded", Types.LONG);
            perPartition = getRuntimeContext().getMapState(new MapStateDescriptor<>("per-partition", Types.STRING, Types.LONG));
            windows = getRuntimeContext().getMapState(new MapStateDescriptor<>("windows", Types.LONG, Types.LONG));
            fired = value("fired", Types.LONG);
        }

        private <T> ValueState<T> value(String state, TypeInformation<T> type) {
            return getRuntimeContext().getState(new ValueStateDescriptor<>(state, type));
        }

        @Override
        public void processElement(Tuple3<Long, Long, Long> event, Context context, Collector<String> out) throws Exception {
            for (long until = System.nanoTime() + slow * 1000; System.nanoTime() < until; ) {
                Thread.onSpinWait();
            }
            long offset = event.f1;
            seen++;
            if (count.value() == null) {
                // The line of this key; no event is later than this.
                context.timerService().registerEventTimeTimer(Long.MAX_VALUE);
            }
            count.update(or0(count.value()) + 1);
            long last = Math.max(newest.value() == null ? -1 : newest.value(), offset);
            newest.update(last);
            blob.update(payloadOf(event.f2, last));
            if (!recent.get().iterator().hasNext()) {
                context.timerService().registerProcessingTimeTimer(context.timerService().currentProcessingTime() + 700);
            }
            recent.add(offset);
            String partition = "p" + event.f0;
            perPartition.put(partition, or0(perPartition.get(partition)) + 1);
            long end = (offset / WINDOW + 1) * WINDOW;
            windows.put(end, or0(windows.get(end)) + 1);
            context.timerService().registerEventTimeTimer(end);
        }

        @Override
        public void onTimer(long time, OnTimerContext context, Collector<String> out) throws Exception {
            switch (context.timeDomain()) {
                case PROCESSING_TIME:
                    folded.update(or0(folded.value()) + sum(recent.get()));
                    recent.clear();
                    return;
                case EVENT_TIME:
                    if (time < Long.MAX_VALUE) {
                        // A window can close twice, when an event came after it was closed; none is counted twice.
                        fired.update(or0(fired.value()) + or0(windows.get(time)));
                        windows.remove(time);
                        return;
                    }
            }
            CRC32 crc = new CRC32();
            crc.update(blob.value());
            StringBuilder partitions = new StringBuilder();
            for (Map.Entry<String, Long> entry : new TreeMap<>(asMap(perPartition)).entrySet()) {
                partitions.append(' ').append(entry.getKey()).append('=').append(entry.getValue());
            }
            out.collect(String.format("%s key %d count %d newest %d sum %d fired %d open %d blob %d:%08x%s", name, context.getCurrentKey(),
                    count.value(), newest.value(), or0(folded.value()) + sum(recent.get()), or0(fired.value()), asMap(windows).size(),
                    blob.value().length, crc.getValue(), partitions));
            if (!seenTold) {
                // Summed up by whoever compares: which subtask counted what depends on the parallelism.
                out.collect(name + " seen " + seen);
                seenTold = true;
            }
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            seenBefore = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("seen", Types.LONG));
            seen = sum(seenBefore.get());
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            // In parts, so that there is something to distribute over more subtasks.
            seenBefore.update(List.of(seen / 2, seen - seen / 2));
        }

        private byte[] payloadOf(long key, long offset) {
            byte[] bytes = new byte[payload];
            new Random(key * 1_000_003 + offset).nextBytes(bytes);
            byte[] head = (name + "/" + key + "/" + offset).getBytes(StandardCharsets.UTF_8);
            System.arraycopy(head, 0, bytes, 0, Math.min(head.length, payload));
            return bytes;
        }

        private static <K, V> Map<K, V> asMap(MapState<K, V> state) throws Exception {
            Map<K, V> map = new HashMap<>();
            for (Map.Entry<K, V> entry : state.entries()) {
                map.put(entry.getKey(), entry.getValue());
            }
            return map;
        }

        private static long or0(Long value) {
            return value == null ? 0 : value;
        }

        private static long sum(Iterable<Long> values) {
            long sum = 0;
            for (long value : values) {
                sum += value;
            }
            return sum;
        }
    }
}
