/* Rows that come as Arrow arrays, and streams that are read as one. */
#include "harness.h"
#include "yamal.h"
#include "ytp/arrow.h"
#include "ytp/scan.h"

static const int32_t narrow[] = {0, 3, 3, 7};
static const int64_t large[] = {0, 3, 3, 7};
static const char text[] = "onefour";

static struct ArrowSchema of_type(const char *format)
{
    struct ArrowSchema schema = {.format = format};
    return schema;
}

static struct ArrowArray of_rows(int64_t length, const void **buffers, int64_t n_buffers)
{
    struct ArrowArray array = {.length = length, .n_buffers = n_buffers, .buffers = buffers};
    return array;
}

static size_t count_messages(ytp_bus_t *bus)
{
    ytp_cursor_t *cursor = NULL;
    ytp_message_t m;
    size_t count = 0;
    OK(ytp_cursor_new(bus, &cursor, &fault));
    while (ytp_cursor_next(cursor, &m, &fault) == YTP_OK)
        count++;
    ytp_cursor_free(cursor);
    return count;
}

static int write_array(ytp_bus_t *bus, const char *format, const struct ArrowArray *array, size_t *written)
{
    ytp_writer_t writer = writer_of(bus, "p", "c");
    struct ArrowSchema schema = of_type(format);
    return ytp_bus_write_arrow(bus, &writer, NULL, 0, 5, &schema, array, written, &fault);
}

TEST(offsets_of_both_widths)
{
    const void *buffers32[] = {NULL, narrow, text}, *buffers64[] = {NULL, large, text};
    ytp_bus_t *bus = open_bus(scratch("offsets"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    struct ArrowArray array = of_rows(3, buffers32, 3);
    size_t written = 0;

    OK(write_array(bus, "z", &array, &written));
    CHECK_EQ(written, 3);
    array.buffers = buffers64;
    OK(write_array(bus, "U", &array, &written));
    CHECK_EQ(count_messages(bus), 6);
    ytp_bus_free(bus);
}

TEST(what_can_not_be_is_refused_before_anything_is_written)
{
    static const int32_t falling[] = {0, 3, 2}, below[] = {-1, 3, 4};
    static const uint8_t valid[] = {1}; /* the second of two rows is null */
    static const int64_t sizes[] = {20};
    int32_t outside[] = {15, 0, 0, 10}, elsewhere[] = {15, 0, 1, 0}, negative[] = {-1, 0, 0, 0};
    const void *buffers[] = {NULL, falling, text}, *views[] = {NULL, outside, text, sizes};
    ytp_bus_t *bus = open_bus(scratch("refused"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    struct ArrowArray array = of_rows(2, buffers, 3), view = of_rows(1, views, 4);
    size_t written = 9;

    CODE(write_array(bus, "z", &array, &written), YTP_ERR_INVALID);
    CHECK_EQ(written, 0);
    buffers[1] = below;
    CODE(write_array(bus, "z", &array, &written), YTP_ERR_INVALID);
    buffers[0] = valid;
    buffers[1] = narrow;
    array.null_count = 1;
    CODE(write_array(bus, "z", &array, &written), YTP_ERR_INVALID);
    array.null_count = 0;
    OK(write_array(bus, "z", &array, &written)); /* a count of 0 says that there are none, whatever the bits are */
    CHECK_EQ(count_messages(bus), 2);
    array.n_buffers = 2;
    CODE(write_array(bus, "z", &array, &written), YTP_ERR_INVALID);
    array.length = -1;
    CODE(write_array(bus, "w:3", &array, &written), YTP_ERR_INVALID);
    const char *formats[] = {"w:", "w:3x", "i", "+s", "vx", "", "tdD"};
    array.length = 1;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        CODE(write_array(bus, formats[i], &array, &written), YTP_ERR_INVALID);
    CODE(write_array(bus, "vz", &view, &written), YTP_ERR_INVALID);
    views[1] = elsewhere;
    CODE(write_array(bus, "vz", &view, &written), YTP_ERR_INVALID);
    views[1] = negative;
    CODE(write_array(bus, "vz", &view, &written), YTP_ERR_INVALID);
    CHECK_EQ(count_messages(bus), 2);
    ytp_bus_free(bus);
}

/* --- streams --- */

typedef struct source {
    int chunks; /* left to give */
    int fails_at;
    unsigned released;
} source_t;

static const void *const chunk_buffers[] = {NULL, narrow, text};

static void release_array(struct ArrowArray *array)
{
    ((source_t *)array->private_data)->released++;
    array->release = NULL;
}

static void release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    source_t *s = stream->private_data;
    memset(out, 0, sizeof *out);
    out->format = "z";
    out->release = release_schema;
    return s->fails_at == 100 ? EIO : 0;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    source_t *s = stream->private_data;
    memset(out, 0, sizeof *out);
    if (s->chunks == s->fails_at)
        return EIO;
    if (s->chunks-- > 0) {
        *out = of_rows(3, (const void **)(uintptr_t)chunk_buffers, 3);
        out->private_data = s;
        out->release = release_array;
    }
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream)
{
    (void)stream;
    return NULL;
}

static unsigned streams_released;

static void release_stream(struct ArrowArrayStream *stream)
{
    streams_released++;
    stream->release = NULL;
}

static struct ArrowArrayStream stream_of(source_t *source)
{
    struct ArrowArrayStream stream = {get_schema, get_next, get_last_error, release_stream, source};
    return stream;
}

TEST(streams_are_written_chunk_by_chunk)
{
    ytp_bus_t *bus = open_bus(scratch("stream"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writer = writer_of(bus, "p", "c");
    uint64_t times[60] = {0};
    size_t written = 0;

    source_t source = {20, -1, 0};
    struct ArrowArrayStream stream = stream_of(&source);
    OK(ytp_bus_write_arrow_stream(bus, &writer, NULL, 0, 1, &stream, &written, &fault));
    CHECK_EQ(written, 60);
    CHECK_EQ(source.released, 20);
    source = (source_t){20, -1, 0};
    OK(ytp_bus_write_arrow_stream(bus, &writer, times, 60, 0, &stream, &written, &fault));
    CHECK_EQ(written, 60);
    CHECK_EQ(source.released, 20);
    source = (source_t){20, -1, 0};
    CODE(ytp_bus_write_arrow_stream(bus, &writer, times, 59, 0, &stream, &written, &fault), YTP_ERR_INVALID);
    CHECK_EQ(written, 0);
    CHECK_EQ(source.released, 20);
    source = (source_t){20, 10, 0}; /* fails in the middle: what was written is told */
    CODE(ytp_bus_write_arrow_stream(bus, &writer, NULL, 0, 1, &stream, &written, &fault), YTP_ERR_INVALID);
    CHECK_EQ(written, 30);
    CHECK_EQ(source.released, 10);
    source = (source_t){20, 10, 0};
    CODE(ytp_bus_write_arrow_stream(bus, &writer, times, 60, 0, &stream, &written, &fault), YTP_ERR_INVALID);
    CHECK_EQ(written, 0);
    CHECK_EQ(source.released, 10);
    source = (source_t){1, 100, 0};
    CODE(ytp_bus_write_arrow_stream(bus, &writer, NULL, 0, 1, &stream, &written, &fault), YTP_ERR_INVALID);
    CHECK_EQ(count_messages(bus), 150);
    ytp_bus_free(bus);
}

TEST(streams_are_read_one_after_the_other)
{
    source_t sources[3] = {{2, -1, 0}, {0, -1, 0}, {3, 1, 0}};
    struct ArrowArrayStream streams[3], chain;
    struct ArrowSchema schema;
    struct ArrowArray array;

    for (int i = 0; i < 3; i++)
        streams[i] = stream_of(&sources[i]);
    CODE(ytp_scan_chain(streams, 0, &chain, &fault), YTP_ERR_INVALID);
    OK(ytp_scan_chain(streams, 3, &chain, &fault));
    CHECK_EQ(chain.get_schema(&chain, &schema), 0);
    CHECK(strcmp(schema.format, "z") == 0);
    streams_released = 0;
    for (int i = 0; i < 4; i++) { /* two of the first, none of the second, two of the third */
        CHECK_EQ(chain.get_next(&chain, &array), 0);
        CHECK_EQ(array.length, 3);
        CHECK_EQ(streams_released, i < 2 ? 0 : 2);
        array.release(&array);
    }
    CHECK_EQ(chain.get_next(&chain, &array), EIO);
    CHECK(chain.get_last_error(&chain) == NULL);
    sources[2].fails_at = -1;
    CHECK_EQ(chain.get_next(&chain, &array), 0);
    array.release(&array);
    for (int i = 0; i < 2; i++) { /* the end stays the end */
        CHECK_EQ(chain.get_next(&chain, &array), 0);
        CHECK(array.release == NULL);
    }
    chain.release(&chain);
    CHECK(chain.release == NULL);
    CHECK_EQ(streams_released, 3);
}

TESTS(T(offsets_of_both_widths), T(what_can_not_be_is_refused_before_anything_is_written),
      T(streams_are_written_chunk_by_chunk), T(streams_are_read_one_after_the_other))
