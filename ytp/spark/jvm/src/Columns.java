package ytp.spark;

import java.util.Arrays;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** The columns of a batch: views of what the reader fills, without a copy until Spark makes a row. */
final class Columns {
    private Columns() {}

    static final class Longs extends Column {
        private final long[] values;

        Longs(DataType type, long[] values) {
            super(type);
            this.values = values;
        }

        @Override
        public long getLong(int row) {
            return values[row];
        }
    }

    /** Numbers of names, with the name of each number kept once. A negative number is a null. */
    static final class Names extends Column {
        private final int[] numbers;
        private final byte[][] texts;
        private final UTF8String[] strings;

        Names(DataType type, int[] numbers, byte[][] texts) {
            super(type);
            this.numbers = numbers;
            this.texts = texts;
            this.strings = Arrays.stream(texts).map(UTF8String::fromBytes).toArray(UTF8String[]::new);
        }

        @Override
        public boolean isNullAt(int row) {
            return numbers[row] < 0;
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return numbers[row] < 0 ? null : strings[numbers[row]];
        }

        @Override
        public byte[] getBinary(int row) {
            return numbers[row] < 0 ? null : texts[numbers[row]];
        }
    }

    /** Places in the window of the file that is being read. */
    static final class Payloads extends Column {
        private final int[] starts;
        private final int[] ends;
        private byte[] window;

        Payloads(DataType type, int[] starts, int[] ends) {
            super(type);
            this.starts = starts;
            this.ends = ends;
        }

        void look(byte[] at) {
            window = at;
        }

        @Override
        public byte[] getBinary(int row) {
            return Arrays.copyOfRange(window, starts[row], ends[row]);
        }
    }

    /** The same value in every row; null, a Long or a String. */
    static final class Constant extends Column {
        private final Object value;

        Constant(DataType type, Object value) {
            super(type);
            this.value = value instanceof String text ? UTF8String.fromString(text) : value;
        }

        @Override
        public boolean isNullAt(int row) {
            return value == null;
        }

        @Override
        public long getLong(int row) {
            return (Long) value;
        }

        @Override
        public UTF8String getUTF8String(int row) {
            // A folder column of numbers may be asked for as text.
            return value instanceof Long number ? UTF8String.fromString(number.toString()) : (UTF8String) value;
        }
    }

    /** What every column must say. */
    abstract static class Column extends ColumnVector {
        /** Of the present batch. */
        int rows;

        Column(DataType type) {
            super(type);
        }

        private UnsupportedOperationException no() {
            return new UnsupportedOperationException("a column of " + type.simpleString());
        }

        @Override
        public void close() {}

        @Override
        public boolean hasNull() {
            return numNulls() > 0;
        }

        @Override
        public int numNulls() {
            int nulls = 0;
            for (int row = 0; row < rows; row++) {
                nulls += isNullAt(row) ? 1 : 0;
            }
            return nulls;
        }

        @Override
        public boolean isNullAt(int row) {
            return false;
        }

        @Override
        public boolean getBoolean(int row) {
            throw no();
        }

        @Override
        public byte getByte(int row) {
            throw no();
        }

        @Override
        public short getShort(int row) {
            throw no();
        }

        @Override
        public int getInt(int row) {
            throw no();
        }

        @Override
        public long getLong(int row) {
            throw no();
        }

        @Override
        public float getFloat(int row) {
            throw no();
        }

        @Override
        public double getDouble(int row) {
            throw no();
        }

        @Override
        public ColumnarArray getArray(int row) {
            throw no();
        }

        @Override
        public ColumnarMap getMap(int row) {
            throw no();
        }

        @Override
        public Decimal getDecimal(int row, int precision, int scale) {
            throw no();
        }

        @Override
        public UTF8String getUTF8String(int row) {
            throw no();
        }

        @Override
        public byte[] getBinary(int row) {
            throw no();
        }

        @Override
        public ColumnVector getChild(int ordinal) {
            throw no();
        }
    }
}
