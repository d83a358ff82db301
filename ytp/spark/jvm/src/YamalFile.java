package ytp.spark;

import java.io.Closeable;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/**
 * A yamal file, read node by node along the list of messages. Nothing that it says is trusted: every hop is checked as
 * the C core does, with the same words.
 *
 * <p>Windows of the file are read into memory instead of mapped. All that a task reads was published before the plan was
 * made and never changes again, so no atomic access is needed; a file that is cut gives a short read instead of a fault;
 * a task holds a few hundred kilobytes of it; and arrays on the heap are what Spark's rows are copied from fastest.
 */
final class YamalFile implements Closeable {
    /** Damage that ends a file: the job in mode FAILFAST, else only this file. */
    static final class DamageException extends RuntimeException {
        private static final long serialVersionUID = 1;

        DamageException(String path, String text) {
            super(path + ": " + text);
        }
    }

    static final VarHandle LITTLE = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    static final VarHandle BIG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);

    private static final long PAGE = 8 << 20;
    private static final long MOST = 524_288 * PAGE;
    private static final long YAMAL000 = 0x3030304C414D4159L, YAMAL001 = 0x3130304C414D4159L; // as little-endian words
    private static final int SMALLEST_WINDOW = 32 << 10, LARGEST_WINDOW = 256 << 10;
    private static final int BLOCK = 4096;

    final String path;
    final boolean yamal8;
    /** Bytes before the payload of a node. */
    final int header;

    private final FileChannel channel;
    private final long first;
    private final long head;
    private final long counter;

    /** The window: bytes of the file from base on. */
    byte[] window = new byte[SMALLEST_WINDOW];
    private long base;
    private int filled;
    private int reach = SMALLEST_WINDOW;

    /** Where the walk stands: a node (or the head) and its place in the list. */
    private long position;
    private long seqno;
    private long next;
    /** Of the node at position, after move(): the place of its header in the window, and the bytes of its payload. */
    int at;
    int size;

    YamalFile(Plan.Source source) throws IOException {
        path = source.path();
        yamal8 = source.yamal8();
        header = yamal8 ? 32 : 24;
        first = yamal8 ? 536 : 32;
        head = yamal8 ? 16 : 0;
        // Before it is opened: another kind of file under this name could block.
        if (((Number) Files.getAttribute(Path.of(path), "unix:ino")).longValue() != source.inode()) {
            throw replaced();
        }
        channel = FileChannel.open(Path.of(path), StandardOpenOption.READ);
        try {
            load(0, (int) first);
            if (word(yamal8 ? 0 : 24) != (yamal8 ? YAMAL001 : YAMAL000)) {
                throw replaced();
            }
            long reserved = word(yamal8 ? 8 : 0);
            counter = reserved < 0 ? Long.MAX_VALUE : reserved;
            checkBeginning(source.digest());
        } catch (Throwable e) {
            channel.close();
            throw e;
        }
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }

    long position() {
        return position;
    }

    long seqno() {
        return seqno;
    }

    // --- windows ---

    private long word(int at) {
        return (long) LITTLE.get(window, at);
    }

    /** Reads a window that holds `need` bytes from `offset` on. One that follows the last is larger, one elsewhere small. */
    private void load(long offset, int need) throws IOException {
        boolean follows = offset >= base && offset - base <= filled + BLOCK;
        reach = follows ? Math.min(2 * reach, LARGEST_WINDOW) : SMALLEST_WINDOW;
        base = offset & -BLOCK;
        int least = (int) (offset - base) + need, wanted = Math.max(least, reach);
        if (window.length < wanted) {
            window = new byte[wanted];
        }
        ByteBuffer buffer = ByteBuffer.wrap(window, 0, wanted);
        while (buffer.hasRemaining() && channel.read(buffer, base + buffer.position()) > 0) {}
        filled = buffer.position();
        if (filled < least) {
            throw damage(offset, "the file ends at " + (base + filled) + ", before the end of this node");
        }
    }

    // --- walking ---

    /** Stands on a node whose place is known, after a look that it is still in the list. */
    void enter(long start, long place) throws IOException {
        if (start != head) {
            try {
                check(start);
                long before = word((int) (start - base) + 16);
                if (before != head) {
                    check(before);
                } else if (before < base || before + header > base + filled) {
                    load(before, header);
                }
                if (before == start || word((int) (before - base) + 8) != start) {
                    throw damage(start, "not in the list");
                }
                check(start);
            } catch (DamageException e) {
                throw damage(start, "message " + place + " is no longer here: the file was replaced or cut");
            }
        } else if (head + header > base + filled || head < base) {
            load(head, header);
        }
        position = start;
        seqno = place;
        next = word((int) (start - base) + 8);
    }

    /** Whether move() can be done without a new window, which would end what refers to this one. */
    boolean isNextAtHand() {
        long local = next - base;
        return local >= 0 && local + header <= filled && word((int) local) <= filled - header - local;
    }

    /** Goes on to the next node on the way to `end`. */
    void move(long end, long endSeqno) throws IOException {
        if (Long.compareUnsigned(next, first) < 0) {
            throw damage(position, "the list ends at message " + seqno + " before offset " + end
                    + " is met: the file was replaced or cut");
        }
        if (seqno >= endSeqno) {
            throw damage(position, "message " + endSeqno + " was expected at offset " + end + ", not here: "
                    + "the file was replaced");
        }
        long from = position, offset = next, before = seqno;
        check(offset);
        at = (int) (offset - base);
        if (word(at + 16) != from) {
            throw damage(offset, "the link from offset " + from + " does not lead back");
        }
        if (yamal8 && word(at + 24) != before + 1) {
            throw damage(offset, "sequence number " + Long.toUnsignedString(word(at + 24)) + " follows " + before);
        }
        size = (int) word(at);
        next = word(at + 8);
        position = offset;
        seqno = before + 1;
    }

    /** Checks the header of a node before anything of it is used, and brings all of it into the window. */
    private void check(long offset) throws IOException {
        long inPage = offset & (PAGE - 1);
        if ((offset & 7) != 0 || offset < first || offset >= MOST || inPage > PAGE - header) {
            throw damage(position, "leads to offset " + Long.toUnsignedString(offset) + ", where no node can be");
        }
        long local = offset - base;
        if (local < 0 || local + header > filled) {
            load(offset, header);
            local = offset - base;
        }
        long bytes = word((int) local);
        if (bytes <= 0 || bytes > PAGE - header - inPage) {
            throw damage(offset, "a node of " + Long.toUnsignedString(bytes) + " bytes does not fit its page");
        }
        if (offset + header + bytes > counter) {
            throw damage(offset, "a linked node ends at " + (offset + header + bytes)
                    + ", above the reservation counter " + counter);
        }
        if (local + header + bytes > filled) {
            load(offset, header + (int) bytes);
        }
    }

    DamageException damage(long offset, String text) {
        return new DamageException(path, "offset " + offset + ": " + text);
    }

    // --- which file this is ---

    private DamageException replaced() {
        return new DamageException(path, "the file was replaced by another one");
    }

    /** The first messages must begin with the same bytes: digest_of in ytp/spark/index.py. */
    private void checkBeginning(String digest) throws IOException {
        if (digest.isEmpty()) {
            return;
        }
        int nodes = Integer.parseInt(digest.substring(0, digest.indexOf(':')));
        StringBuilder found = new StringBuilder().append(nodes).append(':');
        try {
            MessageDigest sha = MessageDigest.getInstance("SHA-256");
            enter(head, 0);
            for (int i = 0; i < nodes; i++) {
                move(Long.MAX_VALUE, Long.MAX_VALUE);
                sha.update(window, at, 8);
                sha.update(window, at + header, Math.min(size, 256));
            }
            byte[] sum = sha.digest();
            for (int i = 0; i < 8; i++) {
                found.append(String.format("%02x", sum[i]));
            }
        } catch (DamageException e) {
            throw replaced();
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e); // every Java has SHA-256
        }
        if (!digest.contentEquals(found)) {
            throw replaced();
        }
    }
}
