package ytp.spark;

import com.fasterxml.jackson.annotation.JsonFormat;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.InflaterInputStream;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** What ytp/spark/jvm/__init__.py has written: files, stretches between places where they can be cut, names, limits. */
record Plan(List<Field> fields, Rules rules, Limits limits, Sharing sharing, List<Surveyed> files) {
    static final int VERSION = 1;
    static final String CORRUPT = "_corrupt_record";
    private static final Map<String, DataType> TYPES = Map.of("long", DataTypes.LongType, "string", DataTypes.StringType,
            "binary", DataTypes.BinaryType, "timestamp", DataTypes.TimestampType);

    @JsonFormat(shape = JsonFormat.Shape.ARRAY)
    record Field(String name, String type, boolean nullable) {}

    /** How a task treats what it meets; travels to the tasks. */
    record Rules(boolean allKinds, boolean tolerant, boolean ignoreMissing, boolean tellsDamage)
            implements Serializable {}

    /** Inclusive limits. Names are judged one by one, see Names. */
    record Limits(long timeMin, long timeMax, long seqnoMin, long seqnoMax) implements Serializable {
        Limits withTime(long low, long high) {
            return new Limits(Math.max(timeMin, low), Math.min(timeMax, high), seqnoMin, seqnoMax);
        }

        Limits withSeqno(long low, long high) {
            return new Limits(timeMin, timeMax, Math.max(seqnoMin, low), Math.min(seqnoMax, high));
        }
    }

    /** Into how many partitions to cut; 0 is as many as the size asks for. */
    record Sharing(int partitions, long maxBytes, int cores) {}

    /** The names of a file by number. passes is null when every row is wanted, also one without a name. */
    record Names(byte[][] texts, boolean[] passes) implements Serializable {
        /** Bit (number mod 64) of each name that passes, to compare with those that a stretch has. */
        long mask() {
            long mask = passes == null ? -1 : 0;
            for (int i = 0; passes != null && i < passes.length; i++) {
                mask |= passes[i] ? 1L << i : 0;
            }
            return mask;
        }
    }

    /** What tasks must know of a file. values are those of its key=value folders: Long, String or null. */
    record Source(String path, long inode, String digest, boolean yamal8, HashMap<String, Object> values, Names peers,
            Names channels, HashMap<Long, int[]> streams) implements Serializable {
        Source withNames(Names peers, Names channels) {
            return new Source(path, inode, digest, yamal8, values, peers, channels, streams);
        }
    }

    /** The nodes after start up to end; seqno and endSeqno are the places of these two. */
    @JsonFormat(shape = JsonFormat.Shape.ARRAY)
    record Stretch(long start, long seqno, long end, long endSeqno, long nodes, long rows, long bytes, long timeMin,
            long timeMax, long channels, long peers) {}

    /** A file with the stretches that are wanted, and what ended the look at it if that was damage. */
    record Surveyed(Source source, List<Stretch> stretches, String error) {}

    static Plan parse(String text) {
        ObjectMapper mapper = new ObjectMapper().enable(DeserializationFeature.USE_LONG_FOR_INTS);
        try (var bytes = new InflaterInputStream(new ByteArrayInputStream(Base64.getDecoder().decode(text)))) {
            JsonNode root = mapper.readTree(bytes);
            if (root.path("version").asInt() != VERSION) {
                throw new IllegalArgumentException("yamal.jar and the Python package ytp are of different versions");
            }
            return mapper.treeToValue(root.get("plan"), Plan.class);
        } catch (IOException e) {
            throw new IllegalArgumentException("the option plan does not come from ytp.spark.read", e);
        }
    }

    StructType schema() {
        StructType schema = new StructType();
        for (Field field : fields) {
            schema = schema.add(field.name, TYPES.get(field.type), field.nullable);
        }
        return schema;
    }

    /** For explain() and the web page of Spark: which files, in few words. */
    String title() {
        String first = files.isEmpty() ? "no files" : files.get(0).source().path();
        return files.size() < 2 ? first : first + " and " + (files.size() - 1) + " more";
    }
}
