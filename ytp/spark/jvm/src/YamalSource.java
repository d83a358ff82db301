package ytp.spark;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The format "yamal_jvm": reads what ytp.spark.read has planned. Which files there are, where they end and how they can
 * be cut is found out in Python and C, once for both engines; this side only makes the rows.
 */
public final class YamalSource implements TableProvider, DataSourceRegister {
    @Override
    public String shortName() {
        return "yamal_jvm";
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return planOf(options).schema();
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new YamalTable(planOf(properties));
    }

    private static Plan planOf(Map<String, String> options) {
        String text = options.get("plan");
        if (text == null) {
            throw new IllegalArgumentException("the format yamal_jvm can not plan by itself: use "
                    + "ytp.spark.read(spark, path, engine=\"jvm\"), or spark.read.format(\"yamal\")");
        }
        return Plan.parse(text);
    }

    private record YamalTable(Plan plan) implements SupportsRead {
        @Override
        public String name() {
            return "yamal " + plan.title();
        }

        @Override
        public StructType schema() {
            return plan.schema();
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return new YamalScanBuilder(plan);
        }
    }
}
