package ytp.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.InflaterInputStream;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** What ytp/spark/jvm/__init__.py has written: files, stretches between places where they can be cut, names, limits. */
record Plan(StructType schema, Rules rules, Limits limits, Sharing sharing, List<Surveyed> files) {
    static final int VERSION = 1;
    static final String CORRUPT = "_corrupt_record";

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

        boolean keepAllTimes() {
            return timeMin == Long.MIN_VALUE && timeMax == Long.MAX_VALUE;
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

    /** What tasks must know of a file. values are those of its key=value folders, as Long or String or null. */
    record Source(String path, long inode, String digest, boolean yamal8, HashMap<String, Object> values, Names peers,
            Names channels, HashMap<Long, int[]> streams) implements Serializable {
        Source withNames(Names peers, Names channels) {
            return new Source(path, inode, digest, yamal8, values, peers, channels, streams);
        }
    }

    /** From the node after start up to the node end; numbers count all nodes of the list. */
    record Stretch(long start, long seqno, long end, long endSeqno, long nodes, long rows, long bytes, long timeMin,
            long timeMax, long channels, long peers) {}

    /** A file with the stretches that are wanted, and what ended the look at it if that was damage. */
    record Surveyed(Source source, List<Stretch> stretches, String error) {}

    static final Map<String, DataType> TYPES = Map.of("long", DataTypes.LongType, "string", DataTypes.StringType,
            "binary", DataTypes.BinaryType, "timestamp", DataTypes.TimestampType);

    static Plan parse(String text) {
        JsonNode root;
        try (var bytes = new InflaterInputStream(new ByteArrayInputStream(Base64.getDecoder().decode(text)))) {
            root = new ObjectMapper().readTree(bytes);
        } catch (IOException | IllegalArgumentException e) {
            throw new IllegalArgumentException("the option plan does not come from ytp.spark.read: " + e.getMessage(), e);
        }
        if (root.path("version").asInt() != VERSION) {
            throw new IllegalArgumentException("yamal.jar and the Python package ytp are of different versions");
        }
        StructType schema = new StructType();
        for (JsonNode field : root.get("fields")) {
            schema = schema.add(field.get(0).asText(), TYPES.get(field.get(1).asText()), field.get(2).asBoolean());
        }
        JsonNode rules = root.get("rules"), limits = root.get("limits"), sharing = root.get("sharing");
        List<Surveyed> files = new ArrayList<>();
        for (JsonNode file : root.get("files")) {
            files.add(surveyed(file));
        }
        return new Plan(schema,
                new Rules(rules.get("all_kinds").asBoolean(), rules.get("tolerant").asBoolean(),
                        rules.get("ignore_missing").asBoolean(), rules.get("tells_damage").asBoolean()),
                new Limits(limits.get(0).asLong(), limits.get(1).asLong(), limits.get(2).asLong(), limits.get(3).asLong()),
                new Sharing(sharing.get(0).asInt(), sharing.get(1).asLong(), sharing.get(2).asInt()), files);
    }

    private static Surveyed surveyed(JsonNode file) {
        HashMap<String, Object> values = new HashMap<>();
        file.get("values").fieldNames().forEachRemaining(key -> {
            JsonNode value = file.get("values").get(key);
            values.put(key, value.isNull() ? null : value.isNumber() ? (Object) value.asLong() : value.asText());
        });
        HashMap<Long, int[]> streams = new HashMap<>();
        for (JsonNode stream : file.get("streams")) {
            streams.put(stream.get(0).asLong(), new int[] {stream.get(1).asInt(), stream.get(2).asInt()});
        }
        List<Stretch> stretches = new ArrayList<>();
        for (JsonNode s : file.get("stretches")) {
            stretches.add(new Stretch(s.get(0).asLong(), s.get(1).asLong(), s.get(2).asLong(), s.get(3).asLong(),
                    s.get(4).asLong(), s.get(5).asLong(), s.get(6).asLong(), s.get(7).asLong(), s.get(8).asLong(),
                    s.get(9).asLong(), s.get(10).asLong()));
        }
        Source source = new Source(file.get("path").asText(), file.get("inode").asLong(), file.get("digest").asText(),
                file.get("yamal8").asBoolean(), values, names(file.get("peers")), names(file.get("channels")), streams);
        return new Surveyed(source, stretches, file.get("error").isNull() ? null : file.get("error").asText());
    }

    private static Names names(JsonNode given) {
        byte[][] texts = new byte[given.get("texts").size()][];
        for (int i = 0; i < texts.length; i++) {
            texts[i] = Base64.getDecoder().decode(given.get("texts").get(i).asText());
        }
        boolean[] passes = given.get("passes").isNull() ? null : new boolean[texts.length];
        for (int i = 0; passes != null && i < texts.length; i++) {
            passes[i] = given.get("passes").get(i).asBoolean();
        }
        return new Names(texts, passes);
    }

    /** For explain() and the web page of Spark: which files, in few words. */
    String title() {
        String first = files.isEmpty() ? "no files" : files.get(0).source().path();
        return files.size() < 2 ? first : first + " and " + (files.size() - 1) + " more";
    }
}
