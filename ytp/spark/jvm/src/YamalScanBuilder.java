package ytp.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;

/** One query: takes the columns and conditions that it needs, then shares the stretches that are left out to tasks. */
final class YamalScanBuilder implements ScanBuilder, SupportsPushDownRequiredColumns, SupportsPushDownV2Filters {
    private final Plan plan;
    private final Filters filters;
    private StructType columns;

    YamalScanBuilder(Plan plan) {
        this.plan = plan;
        this.filters = new Filters(plan);
        this.columns = plan.schema();
    }

    @Override
    public void pruneColumns(StructType required) {
        columns = required;
    }

    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
        return filters.push(predicates);
    }

    @Override
    public Predicate[] pushedPredicates() {
        return filters.accepted();
    }

    @Override
    public Scan build() {
        return new YamalScan(plan, columns, filters);
    }

    /** Consecutive stretches of one file (four numbers each: start, seqno, end, end seqno), or the damage that ended it. */
    record Piece(int file, long[] ranges, String error) implements Serializable {}

    /** What one task reads. */
    record Share(Piece[] pieces) implements InputPartition {}

    private record Wanted(int file, Plan.Stretch stretch) {
        /** In bytes; a node costs about as much as 64 of them. */
        long weight() {
            return stretch.nodes() * 64 + stretch.bytes();
        }
    }

    private record Estimate(OptionalLong sizeInBytes, OptionalLong numRows) implements Statistics {}

    private static final class YamalScan implements Scan, Batch, SupportsReportStatistics {
        private static final long SMALLEST_SHARE = 4 << 20;

        private final Plan plan;
        private final StructType columns;
        private final Filters filters;
        private final List<Plan.Source> sources = new ArrayList<>();
        private final List<Wanted> wanted = new ArrayList<>();
        private final List<Piece> damaged = new ArrayList<>();

        YamalScan(Plan plan, StructType columns, Filters filters) {
            this.plan = plan;
            this.columns = columns;
            this.filters = filters;
            for (Plan.Surveyed file : plan.files()) {
                if (!filters.keepFile(file.source())) {
                    continue;
                }
                Plan.Source judged = filters.judge(file.source());
                long peers = judged.peers().mask(), channels = judged.channels().mask();
                for (Plan.Stretch stretch : file.stretches()) {
                    if (filters.keepStretch(stretch, peers, channels)) {
                        wanted.add(new Wanted(sources.size(), stretch));
                    }
                }
                if (file.error() != null && plan.rules().tellsDamage()) {
                    damaged.add(new Piece(sources.size(), new long[0], file.error()));
                }
                sources.add(judged);
            }
        }

        @Override
        public StructType readSchema() {
            return columns;
        }

        @Override
        public String description() {
            return "yamal " + plan.title() + " " + columns.simpleString() + " pushed: "
                    + Arrays.toString(filters.accepted());
        }

        @Override
        public Batch toBatch() {
            return this;
        }

        @Override
        public Statistics estimateStatistics() {
            long rows = wanted.stream().mapToLong(one -> one.stretch.rows()).sum();
            long bytes = wanted.stream().mapToLong(one -> one.stretch.bytes()).sum();
            // Of variable columns only the payload is large; the others are about as long as a pointer.
            boolean payload = Arrays.asList(columns.fieldNames()).contains("payload");
            long size = rows * 8 * (columns.length() + 1) + (payload ? bytes : 0);
            return new Estimate(OptionalLong.of(Math.max(size, 1)), OptionalLong.of(rows));
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new YamalReaderFactory(columns, plan.rules(), filters.limits(), sources.toArray(new Plan.Source[0]));
        }

        /** Consecutive stretches in partitions of about equal weight: share_out of ytp/spark/plan.py. */
        @Override
        public InputPartition[] planInputPartitions() {
            List<InputPartition> shares = new ArrayList<>();
            long total = wanted.stream().mapToLong(Wanted::weight).sum(), passed = 0, number = 0;
            long parts = plan.sharing().partitions();
            if (parts == 0) {
                parts = Math.max(ratio(total, plan.sharing().maxBytes()),
                        Math.min(plan.sharing().cores(), ratio(total, SMALLEST_SHARE)));
            }
            List<Wanted> group = new ArrayList<>();
            for (Wanted one : wanted) {
                long here = passed * parts / total;
                if (here != number && !group.isEmpty()) {
                    shares.add(share(group));
                    group.clear();
                }
                number = here;
                group.add(one);
                passed += one.weight();
            }
            if (!group.isEmpty()) {
                shares.add(share(group));
            }
            damaged.forEach(piece -> shares.add(new Share(new Piece[] {piece})));
            return shares.toArray(new InputPartition[0]);
        }

        private static long ratio(long amount, long part) {
            return (amount + part - 1) / part;
        }

        /** One piece per run of stretches of the same file. */
        private static Share share(List<Wanted> group) {
            List<Piece> pieces = new ArrayList<>();
            int from = 0;
            for (int i = 1; i <= group.size(); i++) {
                if (i == group.size() || group.get(i).file != group.get(from).file) {
                    long[] ranges = group.subList(from, i).stream().map(Wanted::stretch)
                            .flatMapToLong(s -> Arrays.stream(new long[] {s.start(), s.seqno(), s.end(), s.endSeqno()}))
                            .toArray();
                    pieces.add(new Piece(group.get(from).file, ranges, null));
                    from = i;
                }
            }
            return new Share(pieces.toArray(new Piece[0]));
        }
    }
}
