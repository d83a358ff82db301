/* Keeping and using the checkpoints of a bus. */
#include "index.h"

#include <inttypes.h>
#include <string.h>

#include "bus.h"
#include "cursor.h"

#define CHECKPOINT_WORDS 10u
#define CONTROL_WORDS 2u
#define CLOSE_BUDGET ((uint64_t)1 << 20) /* messages that a close may still index */
#define SUPPLY_BUDGET                                                                                                  \
    ((uint64_t)1 << 18) /* messages that the page supplier indexes before it looks at its own work                     \
                         */
#define STEPS_BACK 8u   /* damaged records to step over before giving up */

bool ytpi_index_init_chains(ytpi_index_t *index, ytp_yamal_t *y)
{
    ytpi_aux_block_t *block = y->aux.block;

    index->on = block != NULL;
    if (!index->on)
        return true;
    if (!ytpi_chain_init(&index->checkpoints, y, &block->index_root, "YTPIDX01", CHECKPOINT_WORDS))
        return false;
    if (!ytpi_chain_init(&index->controls, y, &block->control_root, "YTPCTL01", CONTROL_WORDS)) {
        ytpi_chain_destroy(&index->checkpoints);
        return false;
    }
    return true;
}

bool ytpi_index_init_walk(ytpi_index_t *index)
{
    return ytpi_mutex_init(&index->lock);
}

void ytpi_index_destroy_walk(ytpi_index_t *index)
{
    ytp_cursor_free(index->walk);
    ytpi_mutex_destroy(&index->lock);
}

void ytpi_index_destroy_chains(ytpi_index_t *index)
{
    if (!index->checkpoints.y) /* never begun; an index that lied was begun and is off */
        return;
    ytpi_chain_destroy(&index->checkpoints);
    ytpi_chain_destroy(&index->controls);
}

/* --- looking up --- */

static void beginning(const ytp_bus_t *bus, ytp_checkpoint_t *out)
{
    memset(out, 0, sizeof *out);
    out->offset = ytpi_head(bus->y, YTP_LIST_DATA);
    out->running_max = out->time_max = INT64_MIN;
    out->time_min = INT64_MAX;
}

bool ytpi_index_read(ytp_bus_t *bus, uint64_t number, ytp_checkpoint_t *out)
{
    uint64_t r[CHECKPOINT_WORDS];

    if (number == 0) {
        beginning(bus, out);
        return true;
    }
    if (!bus->index.on || !ytpi_chain_get(&bus->index.checkpoints, number - 1, r))
        return false;
    out->offset = r[0];
    out->seqno = r[1];
    out->running_max = (int64_t)r[2];
    out->time_min = (int64_t)r[3];
    out->time_max = (int64_t)r[4];
    out->bytes = r[5];
    out->channels = r[6];
    out->peers = r[7];
    out->controls = r[8];
    return out->seqno == number * bus->y->aux.stretch;
}

bool ytpi_index_use(ytp_bus_t *bus, uint64_t number, ytp_checkpoint_t *out)
{
    if (!ytpi_index_read(bus, number, out))
        return false;
    if (number == 0)
        return true;
    if (ytp_yamal_seek(bus->y, YTP_LIST_DATA, out->offset, NULL) != YTP_OK)
        return false;
    return !bus->y->yamal8 ||
           ytpi_le64(ytpi_load_relaxed(ytpi_seqno_of(ytpi_node_at(bus->y, out->offset)))) == out->seqno;
}

static uint64_t count(ytp_bus_t *bus)
{
    return bus->index.on ? ytpi_chain_length(&bus->index.checkpoints) : 0;
}

/* Checkpoint `number` or, if that is damaged, one a little before it. */
static void use_near(ytp_bus_t *bus, uint64_t number, ytp_checkpoint_t *out)
{
    for (unsigned i = 0; i < STEPS_BACK && number > 0; i++, number--)
        if (ytpi_index_use(bus, number, out))
            return;
    beginning(bus, out);
}

void ytpi_index_before_seqno(ytp_bus_t *bus, uint64_t seqno, ytp_checkpoint_t *out)
{
    uint64_t number = bus->index.on ? seqno / bus->y->aux.stretch : 0, last = count(bus);
    use_near(bus, number < last ? number : last, out);
}

/* The last checkpoint for which `before` holds, supposing that it holds for a prefix. A record that can not be read
 * counts as not before: that only makes the walk longer. */
typedef bool before_t(const ytp_checkpoint_t *c, uint64_t key);

static void find_last(ytp_bus_t *bus, before_t *before, uint64_t key, ytp_checkpoint_t *out)
{
    uint64_t low = 0, high = count(bus);

    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (ytpi_index_read(bus, middle, out) && before(out, key))
            low = middle;
        else
            high = middle - 1;
    }
    use_near(bus, low, out);
}

static bool earlier(const ytp_checkpoint_t *c, uint64_t key)
{
    return c->running_max < (int64_t)key;
}

static bool at_or_below(const ytp_checkpoint_t *c, uint64_t key)
{
    return c->offset <= key;
}

void ytpi_index_before_time(ytp_bus_t *bus, int64_t time, ytp_checkpoint_t *out)
{
    find_last(bus, earlier, (uint64_t)time, out);
}

void ytpi_index_before_offset(ytp_bus_t *bus, uint64_t offset, ytp_checkpoint_t *out)
{
    find_last(bus, at_or_below, offset, out);
}

uint64_t ytp_bus_index_stretch(ytp_bus_t *bus)
{
    return bus->index.on ? bus->y->aux.stretch : 0;
}

uint64_t ytp_bus_index_count(ytp_bus_t *bus)
{
    return count(bus);
}

int ytp_bus_checkpoint(ytp_bus_t *bus, uint64_t number, ytp_checkpoint_t *out, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(bus->y, err));
    if (!ytpi_index_use(bus, number, out))
        return ytpi_fail(err, YTP_ERR_NOTFOUND, bus->y->path, "checkpoint %" PRIu64 " is missing or damaged", number);
    return YTP_OK;
}

int ytpi_index_names(ytp_bus_t *bus, uint64_t *position, ytp_error_t *err)
{
    ytp_checkpoint_t last;
    uint64_t record[CONTROL_WORDS], size = 0;

    *position = ytpi_head(bus->y, YTP_LIST_DATA);
    if (!bus->index.on)
        return YTP_OK;
    use_near(bus, count(bus), &last);
    for (uint64_t i = 0; i < last.controls; i++) {
        if (!ytpi_chain_get(&bus->index.controls, i, record) ||
            ytp_yamal_seek(bus->y, YTP_LIST_DATA, record[0], NULL) != YTP_OK)
            return YTP_ERR_NOTFOUND;
        YTPI_TRY(ytpi_check_node(bus->y, record[0], record[0], &size, err));
        YTPI_TRY(ytpi_bus_note_node(bus, record[0], size, err));
    }
    *position = last.offset;
    return YTP_OK;
}

/* --- keeping it --- */

static void begin_stretch(ytp_checkpoint_t *now)
{
    now->time_min = INT64_MAX;
    now->time_max = INT64_MIN;
    now->bytes = now->channels = now->peers = 0;
}

static uint64_t bit_of(uint64_t id)
{
    return (uint64_t)1 << ((id - YTP_ID_FIRST) & 63);
}

/* Puts the walk on the last checkpoint, which other processes may have moved on. */
static int place_walk(ytp_bus_t *bus, ytp_error_t *err)
{
    ytpi_index_t *index = &bus->index;
    uint64_t last = count(bus);

    if (index->walk && index->number > last)
        return YTP_OK;
    if (!index->walk) {
        YTPI_TRY(ytp_cursor_new(bus, &index->walk, err));
        ytp_cursor_match_kinds(index->walk, ~0u);
    }
    use_near(bus, last, &index->now);
    YTPI_TRY(ytp_cursor_seek(index->walk, index->now.offset, err));
    index->number = index->now.seqno / bus->y->aux.stretch + 1;
    begin_stretch(&index->now);
    return YTP_OK;
}

static bool write_checkpoint(ytpi_index_t *index)
{
    const ytp_checkpoint_t *c = &index->now;
    uint64_t record[CHECKPOINT_WORDS] = {c->offset,
                                         c->seqno,
                                         (uint64_t)c->running_max,
                                         (uint64_t)c->time_min,
                                         (uint64_t)c->time_max,
                                         c->bytes,
                                         c->channels,
                                         c->peers,
                                         c->controls,
                                         0};

    return ytpi_chain_put(&index->checkpoints, index->number - 1, record);
}

/* Takes one message into the stretch. False when there is no space for what must be written. */
static bool take(ytp_bus_t *bus, const ytp_message_t *m)
{
    ytpi_index_t *index = &bus->index;
    ytp_checkpoint_t *now = &index->now;

    now->offset = m->offset;
    now->seqno++;
    if (m->kind == YTP_KIND_DATA) {
        int64_t time = (int64_t)m->time;
        now->time_min = time < now->time_min ? time : now->time_min;
        now->time_max = time > now->time_max ? time : now->time_max;
        now->running_max = time > now->running_max ? time : now->running_max;
        now->bytes += m->len;
        now->channels |= bit_of(m->channel);
        now->peers |= bit_of(m->peer);
    } else if (m->kind != YTP_KIND_RESERVED) {
        uint64_t record[CONTROL_WORDS] = {m->offset, 0};
        if (!ytpi_chain_put(&index->controls, now->controls, record))
            return false;
        now->controls++;
    }
    if (now->seqno % bus->y->aux.stretch != 0)
        return true;
    bool done = write_checkpoint(index);
    index->number++;
    begin_stretch(now);
    return done;
}

static int update_locked(ytp_bus_t *bus, uint64_t max_nodes, ytp_error_t *err)
{
    ytp_message_t m;
    int rc = place_walk(bus, err);

    for (uint64_t n = 0; rc == YTP_OK && (max_nodes == 0 || n < max_nodes); n++) {
        rc = ytp_cursor_next(bus->index.walk, &m, err);
        if (rc == YTP_OK && !take(bus, &m)) {
            ytp_cursor_free(bus->index.walk);
            bus->index.walk = NULL; /* next time from the last checkpoint that got in */
            return ytpi_fail(err, YTP_ERR_NOSPACE, bus->y->path, "no space for the index");
        }
    }
    return rc < 0 ? rc : YTP_OK;
}

/* Blocks of the index are reserved like messages: in a file that must not be written to they would end up on top of
 * others. */
static int check_sound(ytp_bus_t *bus, ytp_error_t *err)
{
    ytpi_mutex_lock(&bus->lock);
    int rc = ytpi_bus_check_sound(bus, err);
    ytpi_mutex_unlock(&bus->lock);
    return rc;
}

int ytp_bus_index_update(ytp_bus_t *bus, uint64_t max_nodes, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(bus->y, err));
    if (!bus->index.on || bus->y->readonly)
        return YTP_OK;
    YTPI_TRY(check_sound(bus, err));
    ytpi_mutex_lock(&bus->index.lock);
    int rc = update_locked(bus, max_nodes, err);
    ytpi_mutex_unlock(&bus->index.lock);
    return rc;
}

int ytp_bus_index_rebuild(ytp_bus_t *bus, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(bus->y, err));
    if (!bus->index.on)
        return ytpi_fail(err, YTP_ERR_INVALID, bus->y->path, "the file was made by others and can not carry an index");
    if (bus->y->readonly)
        return ytpi_fail(err, YTP_ERR_READONLY, bus->y->path, "opened read-only");
    YTPI_TRY(check_sound(bus, err));
    ytpi_mutex_lock(&bus->index.lock);
    ytpi_chain_clear(&bus->index.checkpoints);
    ytpi_chain_clear(&bus->index.controls);
    ytp_cursor_free(bus->index.walk);
    bus->index.walk = NULL;
    int rc = update_locked(bus, 0, err);
    ytpi_mutex_unlock(&bus->index.lock);
    return rc;
}

/* What nobody asked for must not walk the whole file to find out. */
static void update_if_sound(ytp_bus_t *bus, uint64_t max_nodes)
{
    ytpi_mutex_lock(&bus->lock);
    bool sound = bus->sound;
    ytpi_mutex_unlock(&bus->lock);
    if (sound)
        (void)ytp_bus_index_update(bus, max_nodes, NULL);
}

void ytpi_index_on_supply(void *bus)
{
    update_if_sound(bus, SUPPLY_BUDGET);
}

void ytp_bus_close(ytp_bus_t *bus)
{
    ytpi_supply_stop(bus->y);
    update_if_sound(bus, CLOSE_BUDGET);
    ytp_yamal_close(bus->y);
}
