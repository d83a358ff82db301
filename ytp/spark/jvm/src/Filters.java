package ytp.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** The conditions of a query that the reading applies exactly. What is not accepted here is left to Spark. */
final class Filters {
    private static final long NANOS_PER_MICRO = 1000;
    private static final long FIRST_MICRO = Math.floorDiv(Long.MIN_VALUE, NANOS_PER_MICRO);
    private static final long LAST_MICRO = Math.floorDiv(Long.MAX_VALUE, NANOS_PER_MICRO);

    /** One condition on a name or on the value of a folder. */
    private record Test(String column, String operator, Object[] values) {
        boolean holdsForName(byte[] name) {
            for (Object value : values) {
                byte[] text = (byte[]) value;
                boolean prefix = operator.equals("STARTS_WITH");
                if (prefix ? startsWith(name, text) : Arrays.equals(name, text)) {
                    return true;
                }
            }
            return operator.equals("IS_NOT_NULL");
        }

        boolean holdsForFolder(Object value) {
            if (value == null || operator.equals("IS_NOT_NULL")) {
                return value != null;
            }
            if (value instanceof String) {
                return Arrays.asList(values).contains(UTF8String.fromString((String) value));
            }
            for (Object wanted : values) {
                int order = Long.compare((Long) value, (Long) wanted);
                boolean holds = switch (operator) {
                    case "<" -> order < 0;
                    case "<=" -> order <= 0;
                    case ">" -> order > 0;
                    case ">=" -> order >= 0;
                    default -> order == 0;
                };
                if (holds) {
                    return true;
                }
            }
            return false;
        }
    }

    private final Plan plan;
    private final List<Predicate> accepted = new ArrayList<>();
    private final List<Test> names = new ArrayList<>();
    private final List<Test> folders = new ArrayList<>();
    private Plan.Limits limits;

    Filters(Plan plan) {
        this.plan = plan;
        this.limits = plan.limits();
    }

    Plan.Limits limits() {
        return limits;
    }

    Predicate[] accepted() {
        return accepted.toArray(new Predicate[0]);
    }

    /** Takes what it can and returns the rest. */
    Predicate[] push(Predicate[] given) {
        List<Predicate> rest = new ArrayList<>();
        // The row that reports damage has nulls, which only Spark judges.
        boolean any = !Arrays.asList(plan.schema().fieldNames()).contains(Plan.CORRUPT);
        for (Predicate one : given) {
            if (any && accept(one)) {
                accepted.add(one);
            } else {
                rest.add(one);
            }
        }
        return rest.toArray(new Predicate[0]);
    }

    private boolean accept(Predicate given) {
        Expression[] parts = given.children();
        if (parts.length == 0 || !(parts[0] instanceof NamedReference reference) || reference.fieldNames().length != 1) {
            return false;
        }
        String column = reference.fieldNames()[0], operator = given.name().equals("<=>") ? "=" : given.name();
        Object[] values = new Object[parts.length - 1];
        for (int i = 0; i < values.length; i++) {
            if (!(parts[i + 1] instanceof Literal<?> literal) || literal.value() == null) {
                return false;
            }
            values[i] = literal.value();
        }
        boolean notNull = operator.equals("IS_NOT_NULL");
        return switch (column) {
            case "seqno", "time" -> notNull || acceptNumber(column, operator, values);
            case "peer", "channel" -> acceptName(column, operator, values);
            case "payload", "file_path", "file_offset" -> notNull;
            default -> acceptFolder(column, operator, values);
        };
    }

    private boolean acceptNumber(String column, String operator, Object[] values) {
        if (values.length != 1 || !(values[0] instanceof Long number)) {
            return false;
        }
        long low = Long.MIN_VALUE, high = Long.MAX_VALUE, first = number, last = number;
        if (plan.schema().apply(column).dataType().equals(DataTypes.TimestampType)) {
            // A microsecond stands for the thousand nanoseconds that are rounded down to it.
            if (number < FIRST_MICRO || number > LAST_MICRO) {
                return false;
            }
            first = number == FIRST_MICRO ? Long.MIN_VALUE : number * NANOS_PER_MICRO;
            last = number == LAST_MICRO ? Long.MAX_VALUE : number * NANOS_PER_MICRO + (NANOS_PER_MICRO - 1);
        }
        switch (operator) {
            case "=" -> {
                low = first;
                high = last;
            }
            case ">=" -> low = first;
            case "<=" -> high = last;
            case ">" -> {
                if (last == Long.MAX_VALUE) {
                    return false;
                }
                low = last + 1;
            }
            case "<" -> {
                if (first == Long.MIN_VALUE) {
                    return false;
                }
                high = first - 1;
            }
            default -> {
                return false;
            }
        }
        limits = column.equals("time") ? limits.withTime(low, high) : limits.withSeqno(low, high);
        return true;
    }

    private boolean acceptName(String column, String operator, Object[] values) {
        if (!List.of("=", "IN", "STARTS_WITH", "IS_NOT_NULL").contains(operator)) {
            return false;
        }
        Object[] texts = new Object[values.length];
        for (int i = 0; i < values.length; i++) {
            texts[i] = values[i] instanceof UTF8String text ? text.getBytes() : values[i];
            if (!(texts[i] instanceof byte[])) {
                return false;
            }
        }
        return names.add(new Test(column, operator, texts));
    }

    private boolean acceptFolder(String column, String operator, Object[] values) {
        StructType schema = plan.schema();
        boolean known = Arrays.asList(schema.fieldNames()).contains(column);
        boolean number = known && schema.apply(column).dataType().equals(DataTypes.LongType);
        boolean equality = List.of("=", "IN", "IS_NOT_NULL").contains(operator);
        if (!known || !(equality || (number && List.of("<", "<=", ">", ">=").contains(operator)))) {
            return false;
        }
        for (Object value : values) {
            if (!(number ? value instanceof Long : value instanceof UTF8String)) {
                return false;
            }
        }
        return folders.add(new Test(column, operator, values));
    }

    boolean keepFile(Plan.Source source) {
        return folders.stream().allMatch(test -> test.holdsForFolder(source.values().get(test.column)));
    }

    /** The file with the verdicts of this query on its names. */
    Plan.Source judge(Plan.Source source) {
        return source.withNames(judge("peer", source.peers()), judge("channel", source.channels()));
    }

    private Plan.Names judge(String column, Plan.Names given) {
        List<Test> tests = names.stream().filter(test -> test.column.equals(column)).toList();
        if (tests.isEmpty()) {
            return given;
        }
        boolean[] passes = new boolean[given.texts().length];
        for (int i = 0; i < passes.length; i++) {
            byte[] name = given.texts()[i];
            passes[i] = (given.passes() == null || given.passes()[i])
                    && tests.stream().allMatch(test -> test.holdsForName(name));
        }
        return new Plan.Names(given.texts(), passes);
    }

    /** Whether a stretch can hold a row that is wanted. What it knows of times and names is of messages only. */
    boolean keepStretch(Plan.Stretch stretch, long peers, long channels) {
        if (stretch.endSeqno() < limits.seqnoMin() || stretch.seqno() + 1 > limits.seqnoMax()) {
            return false;
        }
        if (plan.rules().allKinds()) {
            return true;
        }
        return stretch.timeMax() >= limits.timeMin() && stretch.timeMin() <= limits.timeMax()
                && (peers == -1 || (stretch.peers() & peers) != 0)
                && (channels == -1 || (stretch.channels() & channels) != 0);
    }

    private static boolean startsWith(byte[] text, byte[] prefix) {
        return text.length >= prefix.length && Arrays.equals(text, 0, prefix.length, prefix, 0, prefix.length);
    }
}
