/* The scan: a cursor fills columns chunk by chunk, filters squeeze them, and a batch goes out when it is full.
 *
 * Work is done in chunks that stay in the cache: read the nodes, drop what the filters do not want, count what the rows
 * cost. Where a chunk overflows the batch, the cursor is set back to the last row taken; links never change, so the
 * next batch meets the same rows again. */
#include "scan.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "plat.h"

#define CHUNK 512u
#define SCRATCH_COLUMNS 7u
#define SCRATCH_STEP (CHUNK + 40u) /* words: columns a power of two apart would push each other out of the cache */
#define DEFAULT_ROWS 16384u
#define DEFAULT_BYTES ((size_t)16 << 20)
#define MAX_ROWS ((size_t)1 << 24)
#define MAX_BYTES ((size_t)1 << 30) /* Arrow's offsets are 32-bit */

/* Views point into windows of the file. Rows closer than WINDOW_GAP share one, so what a batch drags along when it is
 * serialised is bounded by its rows. */
#define WINDOW_GAP 4096u
#define WINDOW_SIZE ((uint64_t)1 << 30)
#define MAX_WINDOWS 1024u
#define INLINE_PAYLOAD 12u

typedef struct view {
    int32_t len;
    union {
        uint8_t bytes[INLINE_PAYLOAD];
        struct {
            uint8_t prefix[4];
            int32_t window;
            int32_t offset;
        } there;
    } u;
} view_t;
_Static_assert(sizeof(view_t) == 16, "Arrow's layout of a view");

typedef struct window {
    uint64_t low;
    uint64_t high;
} window_t;

typedef struct scan {
    ytp_bus_t *bus;
    ytp_cursor_t *cursor;
    ytp_scan_options_t options; /* arrays are own copies, in `block` */
    void *block;
    ytpi_scan_names_t names[2]; /* peers, channels */
    bool want[YTP_SCAN_COLUMN_COUNT];
    size_t widths[YTP_SCAN_COLUMN_COUNT]; /* bytes of a row in the columns of a batch */
    bool filtered;
    bool unnamed[2]; /* the batch may have rows with an id that nobody announced */
    size_t range;    /* the one being read; range_count when done */
    bool entered;
    uint64_t chunk_start; /* position and place before the last chunk */
    uint64_t chunk_seqno;
    ytp_columns_t chunk; /* its rows: in the batch where the column is wanted, else in `scratch` */
    uint64_t *scratch;
    uint64_t *data; /* for copies: file offsets and lengths of the payloads of the whole batch */
    uint64_t *lens;
    window_t *windows;
    size_t window_count;
    ytp_error_t error;
    void *owner;
    void (*release_owner)(void *owner);
} scan_t;

/* --- options --- */

void ytp_scan_defaults(ytp_scan_options_t *options)
{
    static const ytp_scan_column_t all[] = {YTP_SCAN_OFFSET, YTP_SCAN_SEQNO,   YTP_SCAN_TIME,
                                            YTP_SCAN_PEER,   YTP_SCAN_CHANNEL, YTP_SCAN_PAYLOAD};
    memset(options, 0, sizeof *options);
    options->columns = all;
    options->column_count = YTP_SCAN_COLUMN_COUNT;
    options->time_min = INT64_MIN;
    options->time_max = INT64_MAX;
    options->seqno_max = UINT64_MAX;
}

static int check_options(const ytp_scan_options_t *o, const char *path, ytp_error_t *err)
{
    bool seen[YTP_SCAN_COLUMN_COUNT] = {false};

    for (size_t i = 0; i < o->column_count; i++) {
        if ((unsigned)o->columns[i] >= YTP_SCAN_COLUMN_COUNT || seen[o->columns[i]])
            return ytpi_fail(err, YTP_ERR_INVALID, path, "column %d is unknown or asked for twice", (int)o->columns[i]);
        seen[o->columns[i]] = true;
    }
    if (o->batch_rows > MAX_ROWS || o->batch_bytes > MAX_BYTES)
        return ytpi_fail(err, YTP_ERR_INVALID, path, "a batch of %zu rows or %zu bytes is too large", o->batch_rows,
                         o->batch_bytes);
    return YTP_OK;
}

static size_t texts_size(const ytp_name_match_t *matches, size_t count)
{
    size_t size = count * sizeof *matches;
    for (size_t i = 0; i < count; i++)
        size += matches[i].text.len;
    return size;
}

static const ytp_name_match_t *copy_matches(ytp_name_match_t **at, char **text, const ytp_name_match_t *from,
                                            size_t count)
{
    ytp_name_match_t *copy = *at;

    *at += count;
    for (size_t i = 0; i < count; i++) {
        copy[i] = from[i];
        if (from[i].text.len)
            memcpy(*text, from[i].text.ptr, from[i].text.len);
        copy[i].text.ptr = *text;
        *text += from[i].text.len;
    }
    return copy;
}

/* Copies the arrays that the options point to into one block. Names given beforehand go into the name tables. */
static int copy_options(scan_t *s, const ytp_scan_options_t *o, ytp_error_t *err)
{
    size_t ranges = o->range_count * sizeof *o->ranges, columns = o->column_count * sizeof *o->columns;
    char *at = ytpi_plat_alloc(ranges + texts_size(o->peers, o->peer_count) +
                               texts_size(o->channels, o->channel_count) + columns + sizeof *o->ranges);

    if (!at)
        return ytpi_fail(err, YTP_ERR_NOMEM, s->bus->y->path, "out of memory");
    s->block = at;
    s->options = *o;
    s->options.ranges = (ytp_scan_range_t *)(void *)at;
    if (ranges)
        memcpy(at, o->ranges, ranges);
    at += ranges ? ranges : sizeof *o->ranges; /* room for the range of the whole log */
    ytp_name_match_t *matches = (ytp_name_match_t *)(void *)at;
    char *text = (char *)(matches + o->peer_count + o->channel_count);
    s->options.columns = (ytp_scan_column_t *)(void *)text;
    if (columns)
        memcpy(text, o->columns, columns);
    text += columns;
    s->options.peers = copy_matches(&matches, &text, o->peers, o->peer_count);
    s->options.channels = copy_matches(&matches, &text, o->channels, o->channel_count);
    s->options.peer_names = s->options.channel_names = NULL;
    if (s->options.batch_rows == 0)
        s->options.batch_rows = DEFAULT_ROWS;
    if (s->options.batch_bytes == 0)
        s->options.batch_bytes = DEFAULT_BYTES;
    for (size_t i = 0; i < o->column_count; i++) {
        ytp_scan_column_t column = o->columns[i];
        bool named = column == YTP_SCAN_PEER || column == YTP_SCAN_CHANNEL;
        s->want[column] = true;
        s->widths[column] = column == YTP_SCAN_PAYLOAD ? sizeof(view_t) : named ? sizeof(uint32_t) : sizeof(int64_t);
    }
    if (o->flags & YTP_SCAN_COPY)
        s->widths[YTP_SCAN_PAYLOAD] = 0; /* its size is known when the rows are */
    s->filtered = o->peer_count || o->channel_count || o->time_min != INT64_MIN || o->time_max != INT64_MAX ||
                  o->seqno_min > 1 || o->seqno_max != UINT64_MAX;
    return YTP_OK;
}

static int prepare_names(scan_t *s, const ytp_scan_options_t *o, ytp_error_t *err)
{
    const ytp_span_t *given[2] = {o->peer_names, o->channel_names};
    size_t counts[2] = {o->peer_name_count, o->channel_name_count};

    for (unsigned which = 0; which < 2; which++) {
        ytpi_scan_names_t *names = &s->names[which];
        names->bus = s->bus;
        names->channels = which == 1;
        names->binary = (o->flags & YTP_SCAN_BINARY_NAMES) != 0;
        names->matches = which ? s->options.channels : s->options.peers;
        names->match_count = which ? o->channel_count : o->peer_count;
        names->complete = given[which] != NULL;
        for (size_t i = 0; given[which] && i < counts[which]; i++)
            YTPI_TRY(ytpi_scan_names_add(names, given[which][i].ptr, given[which][i].len, err));
    }
    return YTP_OK;
}

/* Without ranges: the whole log as it stands. Damage before its end is met by the reading, after what is good. */
static void take_whole_log(scan_t *s)
{
    ytp_scan_range_t *range = (ytp_scan_range_t *)(uintptr_t)s->options.ranges;

    range->start = ytpi_head(s->bus->y, YTP_LIST_DATA);
    if (ytp_yamal_end(s->bus->y, YTP_LIST_DATA, &range->end, NULL) != YTP_OK)
        range->end = YTP_NO_OFFSET;
    s->options.range_count = 1;
}

/* --- reading nodes --- */

static bool empty_range(const ytp_scan_range_t *range)
{
    return range->start == range->end;
}

static int enter_range(scan_t *s, const ytp_scan_range_t *range, ytp_error_t *err)
{
    int rc = ytp_cursor_seek(s->cursor, range->start, err);
    if (rc == YTP_ERR_NOTFOUND)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, s->bus->y->path, range->start,
                            "message %" PRIu64 " is no longer here: the file was replaced or cut", range->seqno);
    YTPI_TRY(rc);
    s->cursor->seqno = range->seqno;
    s->cursor->seqno_known = true;
    ytp_cursor_stop_after(s->cursor, range->end);
    s->entered = true;
    return YTP_OK;
}

static int leave_range(scan_t *s, const ytp_scan_range_t *range, ytp_error_t *err)
{
    const ytp_cursor_t *c = s->cursor;

    if (range->end != YTP_NO_OFFSET && c->position != range->end)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, s->bus->y->path, c->position,
                            "the list ends at message %" PRIu64 " before offset %" PRIu64
                            " is met: the file was replaced "
                            "or cut",
                            c->seqno, range->end);
    if (range->end_seqno && c->seqno != range->end_seqno)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, s->bus->y->path, c->position,
                            "message %" PRIu64 " was expected here, not %" PRIu64 ": the file was replaced",
                            range->end_seqno, c->seqno);
    s->range++;
    s->entered = false;
    return YTP_OK;
}

/* Columns that nobody wants, and places of payloads that become views, are needed for one chunk only: they stay in a
 * corner of the cache instead of taking the place of rows there. */
static void place_chunk(scan_t *s, const ytpi_batch_t *b)
{
    uint64_t *scratch[SCRATCH_COLUMNS], **fixed[] = {&s->chunk.offset, &s->chunk.seqno, &s->chunk.time};
    uint32_t **numbers[] = {&s->chunk.peer, &s->chunk.channel};
    bool copied = s->data != NULL;

    for (size_t i = 0; i < SCRATCH_COLUMNS; i++)
        scratch[i] = s->scratch + i * SCRATCH_STEP;
    for (size_t i = 0; i < 3; i++)
        *fixed[i] = b->fixed[i] ? (uint64_t *)b->fixed[i] + b->rows : scratch[i];
    for (size_t i = 0; i < 2; i++)
        *numbers[i] = b->numbers[i] ? b->numbers[i] + b->rows : (uint32_t *)(void *)scratch[3 + i];
    s->chunk.data = copied ? s->data + b->rows : scratch[5];
    s->chunk.len = copied ? s->lens + b->rows : scratch[6];
}

/* Fills the next chunk; *got = 0 with YTP_END when all ranges are done. */
static int read_chunk(scan_t *s, const ytpi_batch_t *b, size_t max, size_t *got, ytp_error_t *err)
{
    place_chunk(s, b);
    *got = 0;
    while (s->range < s->options.range_count) {
        const ytp_scan_range_t *range = &s->options.ranges[s->range];
        if (!s->entered && empty_range(range)) {
            s->range++;
            continue;
        }
        if (!s->entered)
            YTPI_TRY(enter_range(s, range, err));
        if (s->cursor->seqno >= s->options.seqno_max) {
            s->range = s->options.range_count; /* ranges come in list order */
            break;
        }
        s->chunk_start = s->cursor->position;
        s->chunk_seqno = s->cursor->seqno;
        int rc = ytp_cursor_read(s->cursor, max, &s->chunk, got, err);
        if (rc <= YTP_OK)
            return rc;
        YTPI_TRY(leave_range(s, range, err));
    }
    return YTP_END;
}

/* --- filters --- */

/* UINT32_MAX, an id that can not be announced, does not count. */
static uint32_t highest_number(const uint32_t *numbers, size_t count)
{
    uint32_t highest = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t number = numbers[i] != UINT32_MAX ? numbers[i] : 0;
        highest = number > highest ? number : highest;
    }
    return highest;
}

static int reach_names(scan_t *s, unsigned which, const uint32_t *numbers, size_t count, ytp_error_t *err)
{
    ytpi_scan_names_t *names = &s->names[which];
    uint32_t bits = 0;

    if (count == 0 || (!s->want[which ? YTP_SCAN_CHANNEL : YTP_SCAN_PEER] && !names->match_count))
        return YTP_OK;
    for (size_t i = 0; i < count; i++)
        bits |= numbers[i]; /* no number is larger than all their bits, and this takes a quarter of the time */
    if (ytpi_likely(bits < names->count))
        return YTP_OK;
    uint32_t highest = highest_number(numbers, count);
    YTPI_TRY(ytpi_scan_names_reach(names, highest, err));
    s->unnamed[which] = s->unnamed[which] || bits == UINT32_MAX || highest >= names->count;
    return YTP_OK;
}

static inline bool name_passes(const ytpi_scan_names_t *names, uint32_t number)
{
    return names->match_count == 0 || (number < names->count && names->passes[number]);
}

/* Moves the rows that pass together; returns how many. */
static size_t squeeze(const scan_t *s, size_t count)
{
    const ytp_scan_options_t *o = &s->options;
    const ytp_columns_t *c = &s->chunk;
    size_t to = 0;

    for (size_t from = 0; from < count; from++) {
        uint64_t time = c->time[from], seqno = c->seqno[from];
        uint32_t peer = c->peer[from], channel = c->channel[from];
        bool keep = (int64_t)time >= o->time_min && (int64_t)time <= o->time_max && seqno >= o->seqno_min &&
                    seqno <= o->seqno_max && name_passes(&s->names[1], channel) && name_passes(&s->names[0], peer);
        c->offset[to] = c->offset[from];
        c->seqno[to] = seqno;
        c->time[to] = time;
        c->peer[to] = peer;
        c->channel[to] = channel;
        c->data[to] = c->data[from];
        c->len[to] = c->len[from];
        to += keep;
    }
    return to;
}

/* --- what rows cost --- */

static bool same_range(const ytpi_map_t *map, uint64_t a, uint64_t b)
{
    return (a < map->range_size && b < map->range_size) || a / map->range_size == b / map->range_size;
}

/* Whether a payload is close enough to those of a window to share it. */
static inline bool belongs(const window_t *w, const ytpi_map_t *map, uint64_t data, uint64_t len)
{
    return data >= w->low && data <= w->high + WINDOW_GAP && data + len - w->low <= WINDOW_SIZE &&
           same_range(map, data, w->low);
}

/* Made while the payload is still in the cache. */
static inline void set_view(view_t *view, const uint8_t *payload, uint64_t len, size_t window, uint64_t offset)
{
    view->len = (int32_t)len; /* NOLINT(clang-analyzer-core.NullDereference): whoever makes views has room for them */
    memcpy(view->u.there.prefix, payload, 4);
    view->u.there.window = (int32_t)window;
    view->u.there.offset = (int32_t)offset;
}

static void set_inline(view_t *view, const uint8_t *payload, uint64_t len)
{
    view->len = (int32_t)len;
    memset(view->u.bytes, 0, INLINE_PAYLOAD);
    memcpy(view->u.bytes, payload, len);
}

/* Makes the views of as many rows as there are windows for. */
static size_t take_views(scan_t *s, ytpi_batch_t *b, size_t count)
{
    const ytpi_map_t *map = &s->bus->y->map;
    const uint64_t *data = s->chunk.data, *lens = s->chunk.len;
    view_t *views = (view_t *)b->views + b->rows;
    size_t n = 0;

    while (n < count) {
        window_t w = {UINT64_MAX, 0}; /* nothing belongs */
        if (s->window_count)
            w = s->windows[s->window_count - 1];
        for (; n < count; n++) {
            const uint8_t *payload = ytpi_map_at(map, data[n]);
            if (lens[n] <= INLINE_PAYLOAD) {
                set_inline(&views[n], payload, lens[n]);
                continue;
            }
            if (ytpi_unlikely(!belongs(&w, map, data[n], lens[n])))
                break;
            w.high = data[n] + lens[n] > w.high ? data[n] + lens[n] : w.high;
            set_view(&views[n], payload, lens[n], s->window_count - 1, data[n] - w.low);
        }
        if (s->window_count)
            s->windows[s->window_count - 1] = w;
        if (n < count) {
            if (s->window_count == MAX_WINDOWS)
                break;
            s->windows[s->window_count].low = data[n];
            s->windows[s->window_count++].high = data[n];
        }
    }
    return n;
}

/* Takes as many of `count` rows as the batch has room for; the first row of a batch always fits. */
static size_t take_rows(scan_t *s, ytpi_batch_t *b, size_t count, size_t *bytes)
{
    bool payload = s->want[YTP_SCAN_PAYLOAD], copied = payload && (s->options.flags & YTP_SCAN_COPY) != 0;
    bool spelt = (s->options.flags & YTP_SCAN_PLAIN_NAMES) != 0;
    size_t n = 0;

    if (payload && !copied)
        count = take_views(s, b, count);
    if (!copied && !spelt)
        return count;
    for (; n < count; n++) {
        size_t cost = copied ? s->chunk.len[n] : 0;
        for (unsigned which = 0; spelt && which < 2; which++) {
            uint32_t number = which ? s->chunk.channel[n] : s->chunk.peer[n];
            if (s->want[which ? YTP_SCAN_CHANNEL : YTP_SCAN_PEER] && number < s->names[which].count)
                cost += s->names[which].lens[number];
        }
        if (b->rows + n > 0 && *bytes + cost > s->options.batch_bytes)
            break;
        *bytes += cost;
    }
    return n;
}

/* Sets the cursor back behind the last of `taken` rows of this chunk. */
static void step_back(scan_t *s, size_t taken)
{
    s->cursor->position = taken ? s->chunk.offset[taken - 1] : s->chunk_start;
    s->cursor->seqno = taken ? s->chunk.seqno[taken - 1] : s->chunk_seqno;
}

static int gather(scan_t *s, ytpi_batch_t *b, ytp_error_t *err)
{
    size_t bytes = 0;

    s->window_count = 0;
    s->unnamed[0] = s->unnamed[1] = false;
    while (b->rows < b->room) {
        size_t max = b->room - b->rows, got;
        int rc = read_chunk(s, b, max < CHUNK ? max : CHUNK, &got, err);
        if (rc < 0 && b->rows)
            return YTP_OK; /* the error comes again with the next batch */
        if (rc != YTP_OK)
            return rc == YTP_END ? YTP_OK : rc;
        YTPI_TRY(reach_names(s, 0, s->chunk.peer, got, err));
        YTPI_TRY(reach_names(s, 1, s->chunk.channel, got, err));
        size_t kept = s->filtered ? squeeze(s, got) : got;
        size_t taken = take_rows(s, b, kept, &bytes);
        b->rows += taken;
        if (taken < kept) {
            step_back(s, taken);
            break;
        }
    }
    return YTP_OK;
}

/* --- columns with more than numbers in them --- */

static int fill_windows(scan_t *s, ytpi_batch_t *b, ytp_error_t *err)
{
    const ytpi_map_t *map = &s->bus->y->map;

    b->windows = ytpi_plat_alloc((s->window_count + 1) * sizeof *b->windows);
    b->window_sizes = ytpi_plat_alloc((s->window_count + 1) * sizeof *b->window_sizes);
    if (!b->windows || !b->window_sizes)
        return ytpi_fail(err, YTP_ERR_NOMEM, s->bus->y->path, "out of memory for a batch");
    for (size_t i = 0; i < s->window_count; i++) {
        b->windows[i] = ytpi_map_at(map, s->windows[i].low);
        b->window_sizes[i] = (int64_t)(s->windows[i].high - s->windows[i].low);
    }
    b->window_count = s->window_count;
    return YTP_OK;
}

static int copy_payloads(scan_t *s, ytpi_batch_t *b, ytp_error_t *err)
{
    const ytpi_map_t *map = &s->bus->y->map;
    size_t total = 0;

    for (size_t i = 0; i < b->rows; i++)
        total += s->lens[i];
    b->payload_offsets = ytpi_plat_realloc(NULL, (b->rows + 1) * sizeof *b->payload_offsets);
    b->payload = ytpi_plat_realloc(NULL, total + 1);
    if (!b->payload_offsets || !b->payload)
        return ytpi_fail(err, YTP_ERR_NOMEM, s->bus->y->path, "out of memory for a batch");
    size_t at = 0;
    for (size_t i = 0; i < b->rows; i++) {
        b->payload_offsets[i] = (int32_t)at;
        memcpy(b->payload + at, ytpi_map_at(map, s->data[i]), s->lens[i]);
        at += s->lens[i];
    }
    b->payload_offsets[b->rows] = (int32_t)at;
    return YTP_OK;
}

/* Marks the rows whose id nobody announced. */
static int mark_unnamed(const scan_t *s, ytpi_batch_t *b, unsigned which, ytp_error_t *err)
{
    uint32_t *numbers = b->numbers[which];
    size_t known = s->names[which].count, nulls = 0;

    if (!s->unnamed[which])
        return YTP_OK;
    for (size_t i = 0; i < b->rows; i++)
        nulls += numbers[i] >= known;
    if (nulls == 0)
        return YTP_OK;
    uint8_t *valid = ytpi_plat_alloc(b->rows / 8 + 1);
    if (!valid)
        return ytpi_fail(err, YTP_ERR_NOMEM, s->bus->y->path, "out of memory for a batch");
    for (size_t i = 0; i < b->rows; i++)
        if (numbers[i] < known)
            valid[i / 8] |= (uint8_t)(1u << i % 8);
        else
            numbers[i] = UINT32_MAX;
    b->valid[which] = valid;
    b->nulls[which] = (int64_t)nulls;
    return YTP_OK;
}

static int spell_names(const scan_t *s, ytpi_batch_t *b, unsigned which, ytp_error_t *err)
{
    const ytpi_scan_names_t *names = &s->names[which];
    const uint32_t *numbers = b->numbers[which];
    size_t total = 0, at = 0;

    for (size_t i = 0; i < b->rows; i++)
        total += numbers[i] < names->count ? names->lens[numbers[i]] : 0;
    int32_t *offsets = b->spelt_offsets[which] = ytpi_plat_realloc(NULL, (b->rows + 1) * sizeof *offsets);
    char *bytes = b->spelt[which] = ytpi_plat_realloc(NULL, total + 1);
    if (!offsets || !bytes)
        return ytpi_fail(err, YTP_ERR_NOMEM, s->bus->y->path, "out of memory for a batch");
    for (size_t i = 0; i < b->rows; i++) {
        offsets[i] = (int32_t)at;
        if (numbers[i] < names->count) {
            memcpy(bytes + at, names->texts[numbers[i]], names->lens[numbers[i]]);
            at += names->lens[numbers[i]];
        }
    }
    offsets[b->rows] = (int32_t)at;
    return YTP_OK;
}

/* Numbers of unnamed rows stay UINT32_MAX for spelling; a dictionary index must be in range even where it is null. */
static void zero_unnamed(ytpi_batch_t *b, unsigned which)
{
    if (b->nulls[which])
        for (size_t i = 0; i < b->rows; i++)
            if (b->numbers[which][i] == UINT32_MAX)
                b->numbers[which][i] = 0;
}

static int finish(scan_t *s, ytpi_batch_t *b, ytp_error_t *err)
{
    for (size_t i = 0; s->options.offset_base && s->want[YTP_SCAN_OFFSET] && i < b->rows; i++)
        b->fixed[YTP_SCAN_OFFSET][i] += (int64_t)s->options.offset_base;
    for (unsigned which = 0; which < 2; which++) {
        if (!s->want[which ? YTP_SCAN_CHANNEL : YTP_SCAN_PEER])
            continue;
        YTPI_TRY(mark_unnamed(s, b, which, err));
        if (s->options.flags & YTP_SCAN_PLAIN_NAMES) {
            YTPI_TRY(spell_names(s, b, which, err));
        } else {
            zero_unnamed(b, which);
            YTPI_TRY(ytpi_scan_names_dictionary(&s->names[which], &b->dictionaries[which], err));
        }
    }
    if (s->want[YTP_SCAN_PAYLOAD])
        YTPI_TRY(s->options.flags & YTP_SCAN_COPY ? copy_payloads(s, b, err) : fill_windows(s, b, err));
    return ytpi_usable(s->bus->y, err); /* zeros of a file that shrank under us must not pass as data */
}

static int next_batch(scan_t *s, struct ArrowArray *out, ytp_error_t *err)
{
    memset(out, 0, sizeof *out);
    YTPI_TRY(ytpi_usable(s->bus->y, err));
    ytpi_batch_t *b = ytpi_batch_new(s->bus->y, s->options.batch_rows, s->widths);
    int rc = b ? gather(s, b, err) : ytpi_fail(err, YTP_ERR_NOMEM, s->bus->y->path, "out of memory for a batch");
    if (rc == YTP_OK && b->rows)
        rc = finish(s, b, err);
    if (rc != YTP_OK || b->rows == 0) {
        ytpi_batch_release(b);
        return rc;
    }
    return ytpi_batch_export(b, &s->options, out, err);
}

/* --- the stream --- */

static int errno_of(int rc)
{
    switch (rc) {
    case YTP_OK: return 0;
    case YTP_ERR_NOMEM: return ENOMEM;
    case YTP_ERR_CORRUPT:
    case YTP_ERR_TRUNCATED:
    case YTP_ERR_SYS: return EIO;
    default: return EINVAL;
    }
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    scan_t *s = stream->private_data;
    return errno_of(ytp_scan_schema(&s->options, out, &s->error));
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    scan_t *s = stream->private_data;
    return errno_of(next_batch(s, out, &s->error));
}

static const char *get_last_error(struct ArrowArrayStream *stream)
{
    scan_t *s = stream->private_data;
    return s->error.text;
}

static void free_scan(scan_t *s)
{
    ytp_cursor_free(s->cursor);
    for (int i = 0; i < 2; i++)
        ytpi_scan_names_free(&s->names[i]);
    ytpi_plat_free(s->scratch);
    ytpi_plat_free(s->data);
    ytpi_plat_free(s->lens);
    ytpi_plat_free(s->windows);
    ytpi_plat_free(s->block);
    ytpi_plat_free(s);
}

static void release_stream(struct ArrowArrayStream *stream)
{
    scan_t *s = stream->private_data;
    void *owner = s->owner;
    void (*release_owner)(void *) = s->release_owner;

    stream->release = NULL;
    free_scan(s);
    if (release_owner)
        release_owner(owner);
}

static int prepare(scan_t *s, const ytp_scan_options_t *options, ytp_error_t *err)
{
    YTPI_TRY(copy_options(s, options, err));
    YTPI_TRY(prepare_names(s, options, err));
    if (!options->ranges)
        take_whole_log(s);
    bool copied = s->want[YTP_SCAN_PAYLOAD] && s->options.flags & YTP_SCAN_COPY;
    if (copied) {
        s->data = ytpi_plat_realloc(NULL, s->options.batch_rows * sizeof *s->data);
        s->lens = ytpi_plat_realloc(NULL, s->options.batch_rows * sizeof *s->lens);
    }
    s->scratch = ytpi_plat_realloc(NULL, SCRATCH_COLUMNS * SCRATCH_STEP * sizeof *s->scratch);
    s->windows = ytpi_plat_realloc(NULL, MAX_WINDOWS * sizeof *s->windows);
    if ((copied && (!s->data || !s->lens)) || !s->scratch || !s->windows)
        return ytpi_fail(err, YTP_ERR_NOMEM, s->bus->y->path, "out of memory");
    YTPI_TRY(ytp_cursor_new(s->bus, &s->cursor, err));
    if (options->kinds)
        ytp_cursor_match_kinds(s->cursor, options->kinds);
    return YTP_OK;
}

int ytp_scan_open(ytp_bus_t *bus, const ytp_scan_options_t *options, void *owner, void (*release_owner)(void *owner),
                  struct ArrowArrayStream *out, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(bus->y, err));
    YTPI_TRY(check_options(options, bus->y->path, err));
    scan_t *s = ytpi_plat_alloc(sizeof *s);
    if (!s)
        return ytpi_fail(err, YTP_ERR_NOMEM, bus->y->path, "out of memory");
    s->bus = bus;
    int rc = prepare(s, options, err);
    if (rc != YTP_OK) {
        free_scan(s);
        return rc;
    }
    s->owner = owner;
    s->release_owner = release_owner;
    out->get_schema = get_schema;
    out->get_next = get_next;
    out->get_last_error = get_last_error;
    out->release = release_stream;
    out->private_data = s;
    return YTP_OK;
}

const ytp_error_t *ytp_scan_error(const struct ArrowArrayStream *stream)
{
    const scan_t *s = stream->private_data;
    return &s->error;
}
