import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.KeyGroupStatePartitionStreamProvider;
import org.apache.flink.runtime.state.KeyedStateCheckpointOutputStream;
import org.apache.flink.runtime.state.OperatorStateCheckpointOutputStream;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StatePartitionStreamProvider;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/** A job whose operator counts keys three times: as managed keyed, raw keyed and raw operator state. It fails when they differ. */
public class RawStateJob {
    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        GeneratorFunction<Long, Long> key = n -> n % 300;
        env.fromSource(new DataGeneratorSource<>(key, 10_000_000, RateLimiterStrategy.perSecond(500), Types.LONG),
                        WatermarkStrategy.noWatermarks(), "source")
                .uid("source")
                .keyBy(n -> n, Types.LONG)
                .transform("raw", Types.LONG, new Raw())
                .uid("raw")
                .sinkTo(new DiscardingSink<>())
                .uid("sink");
        env.execute("raw state");
    }

    static class Raw extends AbstractStreamOperator<Long> implements OneInputStreamOperator<Long, Long> {
        private transient Map<Long, Long> raw;
        private transient long seen;

        @Override
        public void processElement(StreamRecord<Long> record) throws Exception {
            ValueState<Long> managed = getPartitionedState(new ValueStateDescriptor<>("managed", Types.LONG));
            long before = managed.value() == null ? 0 : managed.value();
            if (raw.getOrDefault(record.getValue(), 0L) != before) {
                throw new IllegalStateException("key " + record.getValue() + ": managed " + before + ", raw " + raw.get(record.getValue()));
            }
            managed.update(before + 1);
            raw.put(record.getValue(), before + 1);
            seen++;
        }

        @Override
        protected boolean isUsingCustomRawKeyedState() {
            return true;
        }

        @Override
        public void snapshotState(StateSnapshotContext context) throws Exception {
            super.snapshotState(context);
            Map<Integer, Map<Long, Long>> groups = new HashMap<>();
            int all = getRuntimeContext().getTaskInfo().getMaxNumberOfParallelSubtasks();
            raw.forEach((key, count) ->
                    groups.computeIfAbsent(KeyGroupRangeAssignment.assignToKeyGroup(key, all), group -> new HashMap<>()).put(key, count));
            KeyedStateCheckpointOutputStream keyed = context.getRawKeyedOperatorStateOutput();
            for (int group : keyed.getKeyGroupList()) {
                // Key groups without a key have no place in the stream.
                if (groups.containsKey(group)) {
                    keyed.startNewKeyGroup(group);
                    DataOutputStream out = new DataOutputStream(keyed);
                    out.writeInt(groups.get(group).size());
                    for (Map.Entry<Long, Long> entry : groups.get(group).entrySet()) {
                        out.writeLong(entry.getKey());
                        out.writeLong(entry.getValue());
                    }
                }
            }
            OperatorStateCheckpointOutputStream operator = context.getRawOperatorStateOutput();
            for (long part : new long[] {seen / 2, seen - seen / 2}) {
                operator.startNewPartition();
                new DataOutputStream(operator).writeLong(part);
            }
        }

        @Override
        public void initializeState(StateInitializationContext context) throws Exception {
            super.initializeState(context);
            raw = new HashMap<>();
            for (KeyGroupStatePartitionStreamProvider group : context.getRawKeyedStateInputs()) {
                DataInputStream in = new DataInputStream(group.getStream());
                for (int left = in.readInt(); left > 0; left--) {
                    raw.put(in.readLong(), in.readLong());
                }
            }
            for (StatePartitionStreamProvider part : context.getRawOperatorStateInputs()) {
                seen += new DataInputStream(part.getStream()).readLong();
            }
            long counted = raw.values().stream().mapToLong(Long::longValue).sum();
            // Both are spread over the subtasks by rules of their own, so only a whole one can be compared.
            if (getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks() == 1 && counted != seen) {
                throw new IllegalStateException("raw keyed state counted " + counted + ", raw operator state " + seen);
            }
        }
    }
}
