package ytp.spark;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.Arrays;
import java.util.function.Function;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import ytp.spark.YamalFile.DamageException;

/** One task: walks its ranges of the files and fills a batch of columns at a time. */
final class YamalReader implements PartitionReader<ColumnarBatch> {
    private static final int ROWS = 4096;
    private static final int FIRST_ID = 256;
    private static final int NANOS_PER_MICRO = 1000;

    private final YamalReaderFactory query;
    private final YamalScanBuilder.Piece[] pieces;
    private int piece = -1;
    private int range;
    private boolean entered;

    private YamalFile file;
    private Plan.Source source;
    private boolean[] peerPasses;
    private boolean[] channelPasses;
    private DamageException pending;

    private final long[] seqnos = new long[ROWS];
    private final long[] times = new long[ROWS];
    private final long[] offsets = new long[ROWS];
    private final int[] peers = new int[ROWS];
    private final int[] channels = new int[ROWS];
    private final int[] starts = new int[ROWS];
    private final int[] ends = new int[ROWS];
    private final boolean wantsPayload;
    private final boolean micros;
    private Columns.Payloads payloads;
    private Columns.Column[] columns;
    private ColumnarBatch batch;
    private int rows;

    /** The last YAMAL001 stream that was met: its peer and its channel by number. */
    private long stream;
    private int[] streamNames;

    YamalReader(YamalReaderFactory query, YamalScanBuilder.Piece[] pieces) {
        this.query = query;
        this.pieces = pieces;
        boolean payload = false, timestamp = false;
        for (StructField field : query.columns().fields()) {
            payload = payload || field.name().equals("payload");
            timestamp = timestamp || (field.name().equals("time") && field.dataType().equals(DataTypes.TimestampType));
        }
        wantsPayload = payload;
        micros = timestamp;
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() throws IOException {
        if (file != null) {
            file.close();
        }
        file = null;
    }

    @Override
    public boolean next() throws IOException {
        for (;;) {
            try {
                if (file != null && fill()) {
                    return true;
                }
                close();
                if (++piece == pieces.length) {
                    return false;
                }
                if (pieces[piece].error() != null) {
                    return tellDamage(pieces[piece].error());
                }
                open();
            } catch (NoSuchFileException e) {
                if (!query.rules().ignoreMissing()) {
                    throw new IOException(e.getFile() + ": No such file or directory", e);
                }
            } catch (DamageException e) {
                close();
                if (!query.rules().tolerant()) {
                    throw e;
                }
                if (query.rules().tellsDamage()) {
                    return tellDamage(e.getMessage());
                }
            }
        }
    }

    private void open() throws IOException {
        source = query.sources()[pieces[piece].file()];
        peerPasses = source.peers().passes();
        channelPasses = source.channels().passes();
        range = 0;
        entered = false;
        streamNames = null;
        pending = null;
        file = new YamalFile(source);
        show(this::column);
    }

    /** Makes the columns of the batches to come. */
    private void show(Function<StructField, Columns.Column> make) {
        columns = Arrays.stream(query.columns().fields()).map(make).toArray(Columns.Column[]::new);
        batch = new ColumnarBatch(columns);
    }

    private boolean emit(int count) {
        for (Columns.Column column : columns) {
            column.rows = count;
        }
        batch.setNumRows(count);
        return count > 0;
    }

    private Columns.Column column(StructField field) {
        switch (field.name()) {
            case "seqno":
                return new Columns.Longs(field.dataType(), seqnos);
            case "time":
                return new Columns.Longs(field.dataType(), times);
            case "file_offset":
                return new Columns.Longs(field.dataType(), offsets);
            case "peer":
                return new Columns.Names(field.dataType(), peers, source.peers().texts());
            case "channel":
                return new Columns.Names(field.dataType(), channels, source.channels().texts());
            case "payload":
                return payloads = new Columns.Payloads(field.dataType(), starts, ends);
            default:
                return constant(field, null);
        }
    }

    /** A column with one value for the whole file; `damage` is that of _corrupt_record. */
    private Columns.Column constant(StructField field, String damage) {
        Object value = field.name().equals("file_path") ? source.path()
                : field.name().equals(Plan.CORRUPT) ? damage : source.values().get(field.name());
        return new Columns.Constant(field.dataType(), value);
    }

    /** The row that mode PERMISSIVE adds for a damaged file: the reason, what is known of the file, and nulls. */
    private boolean tellDamage(String text) {
        source = query.sources()[pieces[piece].file()];
        show(field -> constant(field, text));
        return emit(1);
    }

    /** Fills the batch from the ranges of this piece; false when there is nothing more. */
    private boolean fill() throws IOException {
        if (pending != null) {
            DamageException damage = pending;
            pending = null;
            throw damage;
        }
        rows = 0;
        long[] ranges = pieces[piece].ranges();
        try {
            for (boolean room = true; room && range < ranges.length;) {
                room = enter(ranges[range], ranges[range + 1]) && walk(ranges[range + 2], ranges[range + 3]);
                if (room) {
                    entered = false;
                    range += 4;
                }
            }
        } catch (DamageException e) {
            if (rows == 0) {
                throw e;
            }
            pending = e; // after what is good
        }
        if (wantsPayload) {
            payloads.look(file.window);
        }
        return emit(rows);
    }

    /** Stands at the start of a range; false when the way there would take the window from under the rows. */
    private boolean enter(long start, long seqno) throws IOException {
        // Ranges that follow each other are one walk.
        if (!entered && (range == 0 || file.position() != start || file.seqno() != seqno)) {
            if (wantsPayload && rows > 0) {
                return false;
            }
            file.enter(start, seqno);
        }
        entered = true;
        return true;
    }

    /** Adds the rows up to `end`; false when the batch is full before. */
    private boolean walk(long end, long endSeqno) throws IOException {
        Plan.Limits limits = query.limits();
        boolean allKinds = query.rules().allKinds(), yamal8 = source.yamal8();
        int peerCount = source.peers().texts().length, channelCount = source.channels().texts().length;

        while (file.position() != end) {
            if (rows == ROWS || (wantsPayload && rows > 0 && !file.isNextAtHand())) {
                return false;
            }
            file.move(end, endSeqno);
            byte[] bytes = file.window;
            int at = file.at, size = file.size, payload = at + file.header, data, peer, channel;
            boolean message = true;
            long time;
            if (yamal8) {
                if (size < 16) {
                    throw file.damage(file.position(), "a message of " + size + " bytes has no time and stream");
                }
                time = (long) YamalFile.LITTLE.get(bytes, payload);
                int[] names = namesOf((long) YamalFile.LITTLE.get(bytes, payload + 8));
                peer = names[0];
                channel = names[1];
                data = payload + 16;
            } else {
                if (size < 8) {
                    throw file.damage(file.position(), "a node of " + size + " bytes has no peer");
                }
                long peerId = (long) YamalFile.BIG.get(bytes, payload);
                if (peerId == 0) { // announces a peer
                    message = false;
                    peer = channel = -1;
                    time = 0;
                    data = payload + 8;
                } else {
                    if (size < 24) {
                        throw file.damage(file.position(), "a message of " + size + " bytes has no channel and time");
                    }
                    long channelId = (long) YamalFile.BIG.get(bytes, payload + 8);
                    time = (long) YamalFile.BIG.get(bytes, payload + 16);
                    message = channelId >= FIRST_ID || channelId < 0; // ids are unsigned
                    peer = number(peerId, peerCount);
                    channel = number(channelId, channelCount);
                    data = payload + 24;
                }
            }
            long seqno = file.seqno();
            if ((message || allKinds) && time >= limits.timeMin() && time <= limits.timeMax()
                    && seqno >= limits.seqnoMin() && seqno <= limits.seqnoMax()
                    && (channelPasses == null || (channel >= 0 && channelPasses[channel]))
                    && (peerPasses == null || (peer >= 0 && peerPasses[peer]))) {
                seqnos[rows] = seqno;
                times[rows] = micros ? Math.floorDiv(time, NANOS_PER_MICRO) : time;
                offsets[rows] = file.position();
                peers[rows] = peer;
                channels[rows] = channel;
                starts[rows] = data;
                ends[rows] = payload + size;
                rows++;
            }
        }
        if (file.seqno() != endSeqno) {
            throw file.damage(end, "message " + endSeqno + " was expected here, not " + file.seqno()
                    + ": the file was replaced");
        }
        return true;
    }

    /** -1 for an id that nobody has announced. */
    private static int number(long id, int count) {
        long number = id - FIRST_ID;
        return number >= 0 && number < count ? (int) number : -1;
    }

    private int[] namesOf(long id) {
        if (streamNames == null || id != stream) {
            stream = id;
            streamNames = source.streams().get(id);
            if (streamNames == null) {
                throw file.damage(file.position(), "a message of stream " + Long.toUnsignedString(id)
                        + ", which is not one");
            }
        }
        return streamNames;
    }
}
