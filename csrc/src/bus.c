/* Names, declarations and control messages of a bus.
 *
 * Ids are not stored in the file: every process derives them from the order of first announcements in the list, which
 * is one and the same for all. So a declaration reads the list to its end, appends an announcement if the name was not
 * met, and reads on until it is. */
#include "bus.h"

#include <inttypes.h>
#include <string.h>

#include "plat.h"
#include "ytp/scdp.h"

/* --- what was said before --- */

static uint64_t said_key(uint64_t peer, const void *text, size_t len)
{
    return ytpi_hash(text, len, peer * 0x9E3779B97F4A7C15u);
}

static bool remember(ytpi_said_list_t *list, ytpi_said_t said, uint64_t key)
{
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 16;
        ytpi_said_t *items = ytpi_plat_realloc(list->items, room * sizeof *items);
        if (!items)
            return false;
        list->items = items;
        list->room = room;
    }
    if (!ytpi_table_put(&list->table, key, list->count))
        return false;
    list->items[list->count++] = said;
    return true;
}

static ytpi_said_t *find_subscription(ytp_bus_t *bus, uint64_t peer, const void *text, size_t len)
{
    size_t i = ytpi_table_get(&bus->subscriptions.table, said_key(peer, text, len));
    if (i == YTPI_NONE)
        return NULL;
    ytpi_said_t *said = &bus->subscriptions.items[i];
    return said->peer == peer && said->len == len && memcmp(said->text, text, len) == 0 ? said : NULL;
}

static ytpi_said_t *find_directory(ytp_bus_t *bus, uint64_t peer, ytp_span_t topic)
{
    size_t i = ytpi_table_get(&bus->directories.table, said_key(peer, topic.ptr, topic.len));
    if (i == YTPI_NONE)
        return NULL;
    ytpi_said_t *said = &bus->directories.items[i];
    return said->peer == peer && said->topic_len == topic.len && memcmp(said->topic, topic.ptr, topic.len) == 0 ? said
                                                                                                                : NULL;
}

static ytp_span_t topic_of(const void *text, size_t len)
{
    ytp_span_t all = {text, len}, topic;
    if (!ytp_scdp_find(all, "CHANNEL", &topic)) {
        topic.ptr = text;
        topic.len = 0;
    }
    return topic;
}

static int note_control(ytp_bus_t *bus, uint64_t peer, uint64_t channel, const uint8_t *text, size_t len,
                        ytp_error_t *err)
{
    bool ok = true;

    if (channel == YTP_CHANNEL_ANNOUNCE) {
        if (ytpi_names_find(&bus->channels, text, len) == YTPI_NONE)
            ok = ytpi_names_add(&bus->channels, text, len);
    } else if (channel == YTP_CHANNEL_SUBSCRIBE) {
        if (!find_subscription(bus, peer, text, len)) {
            ytpi_said_t said = {peer, text, len, NULL, 0};
            ok = remember(&bus->subscriptions, said, said_key(peer, text, len));
        }
    } else if (channel == YTP_CHANNEL_DIRECTORY) {
        ytp_span_t topic = topic_of(text, len);
        ytpi_said_t *before = find_directory(bus, peer, topic);
        ytpi_said_t said = {peer, text, len, topic.ptr, topic.len};
        if (before)
            *before = said;
        else
            ok = remember(&bus->directories, said, said_key(peer, topic.ptr, topic.len));
    }
    return ok ? YTP_OK : ytpi_fail(err, YTP_ERR_NOMEM, bus->y->path, "out of memory for names");
}

/* --- reading announcements --- */

static bool reached(const ytp_bus_t *bus, ytpi_goal_t goal, uint64_t number)
{
    return (goal == YTPI_GOAL_PEER && bus->peers.count > number) ||
           (goal == YTPI_GOAL_CHANNEL && bus->channels.count > number);
}

int ytpi_bus_note_node(ytp_bus_t *bus, uint64_t offset, uint64_t size, ytp_error_t *err)
{
    const uint8_t *payload = ytpi_payload(bus->y, offset);

    if (size < 8)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, bus->y->path, offset, "a node of %" PRIu64 " bytes has no peer",
                            size);
    uint64_t peer = ytpi_get_be64(payload);
    if (peer == 0) {
        if (ytpi_names_find(&bus->peers, payload + 8, (size_t)size - 8) == YTPI_NONE &&
            !ytpi_names_add(&bus->peers, payload + 8, (size_t)size - 8))
            return ytpi_fail(err, YTP_ERR_NOMEM, bus->y->path, "out of memory for names");
        return YTP_OK;
    }
    if (size < YTPI_DATA_AT_YTP)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, bus->y->path, offset,
                            "a message of %" PRIu64 " bytes has no channel and time", size);
    uint64_t channel = ytpi_get_be64(payload + 8);
    if (channel > YTP_CHANNEL_DIRECTORY)
        return YTP_OK;
    return note_control(bus, peer, channel, payload + YTPI_DATA_AT_YTP, (size_t)size - YTPI_DATA_AT_YTP, err);
}

static void free_names(ytp_bus_t *bus)
{
    ytpi_names_free(&bus->peers);
    ytpi_names_free(&bus->channels);
    ytpi_plat_free(bus->subscriptions.items);
    ytpi_table_free(&bus->subscriptions.table);
    ytpi_plat_free(bus->directories.items);
    ytpi_table_free(&bus->directories.table);
}

static void forget_names(ytp_bus_t *bus)
{
    free_names(bus);
    memset(&bus->peers, 0, sizeof bus->peers);
    memset(&bus->channels, 0, sizeof bus->channels);
    memset(&bus->subscriptions, 0, sizeof bus->subscriptions);
    memset(&bus->directories, 0, sizeof bus->directories);
}

int ytpi_bus_scan(ytp_bus_t *bus, ytpi_goal_t goal, uint64_t number, ytp_error_t *err)
{
    uint64_t offset, size = 0;
    int rc;

    if (bus->y->yamal8)
        return ytpi_streams_scan(bus, goal, number, err);
    if (bus->scanned == 0) {
        rc = ytpi_index_names(bus, &bus->scanned, err);
        if (rc != YTP_OK) {
            /* What is in the tables may be wrong: the list alone decides. */
            forget_names(bus);
            bus->scanned = 0;
            bus->index.on = false;
        }
    }
    uint64_t start = bus->scanned;
    while (!reached(bus, goal, number)) {
        rc = ytpi_hop(bus->y, bus->scanned, &offset, &size, err);
        if (rc == YTP_END)
            rc = ytpi_end_of(bus->y, 0, bus->scanned, offset, err);
        if (rc != YTP_OK)
            return rc > 0 ? YTP_OK : rc;
        if (offset == start)
            return ytpi_circle(bus->y, start, err);
        YTPI_TRY(ytpi_bus_note_node(bus, offset, size, err));
        bus->scanned = offset;
    }
    return YTP_OK;
}

/* From `position` on a reader meets no error, and the list ends where its hint says. */
static int check_list_sound(ytp_bus_t *bus, unsigned list, uint64_t position, ytp_error_t *err)
{
    uint64_t start = position, next, seqno, size = 0;
    int rc;

    while ((rc = ytpi_hop(bus->y, position, &next, &size, err)) == YTP_OK) {
        if (next == start)
            return ytpi_circle(bus->y, start, err);
        if (bus->y->yamal8)
            YTPI_TRY(ytpi_check_seqno(bus->y, position, next, &seqno, err));
        if (bus->y->yamal8 && list == YTP_LIST_DATA)
            YTPI_TRY(ytpi_streams_check(bus, next, size, err));
        position = next;
    }
    return rc == YTP_END ? ytpi_check_tail(bus->y, list, position, err) : rc;
}

int ytpi_bus_check_sound(ytp_bus_t *bus, ytp_error_t *err)
{
    ytp_yamal_t *y = bus->y;
    uint64_t start = ytpi_head(y, YTP_LIST_DATA);
    ytp_checkpoint_t last;

    if (bus->sound || y->readonly) /* a read-only handle is refused by what comes next */
        return YTP_OK;
    if (ytpi_aux_unbroken(y)) {
        ytpi_index_before_seqno(bus, UINT64_MAX, &last);
        start = last.offset;
    }
    YTPI_TRY(check_list_sound(bus, YTP_LIST_DATA, start, err));
    for (unsigned list = 1; y->yamal8 && list < YTP_LIST_COUNT; list++) /* short, all of them */
        YTPI_TRY(check_list_sound(bus, list, ytpi_head(y, list), err));
    ytpi_aux_vouch(y);
    bus->sound = true;
    return YTP_OK;
}

/* --- opening --- */

/* In the order in which they may be taken, innermost first. */
static bool init_locks(ytp_bus_t *bus, ytp_yamal_t *y)
{
    if (!ytpi_index_init_chains(&bus->index, y))
        return false;
    if (!ytpi_mutex_init(&bus->lock)) {
        ytpi_index_destroy_chains(&bus->index);
        return false;
    }
    if (!ytpi_index_init_walk(&bus->index)) {
        ytpi_mutex_destroy(&bus->lock);
        ytpi_index_destroy_chains(&bus->index);
        return false;
    }
    return true;
}

int ytp_bus_open(const char *path, const ytp_open_options_t *options, ytp_bus_t **out, ytp_error_t *err)
{
    ytp_yamal_t *y = NULL;

    *out = NULL;
    YTPI_TRY(ytp_yamal_open(path, options, &y, err));
    ytp_bus_t *bus = ytpi_plat_alloc(sizeof *bus);
    if (!bus || !init_locks(bus, y)) {
        ytpi_plat_free(bus);
        ytp_yamal_release(y);
        return ytpi_fail(err, YTP_ERR_NOMEM, path, "out of memory");
    }
    bus->y = y;
    bus->scanned = ytpi_head(y, y->yamal8 ? YTP_LIST_ANNOUNCE : YTP_LIST_DATA);
    if (bus->index.on && !y->readonly)
        ytpi_supply_then(y, ytpi_index_on_supply, bus);
    *out = bus;
    return YTP_OK;
}

void ytp_bus_free(ytp_bus_t *bus)
{
    if (!bus)
        return;
    ytpi_supply_then(bus->y, NULL, NULL);
    ytpi_index_destroy_walk(&bus->index);
    free_names(bus);
    ytpi_plat_free(bus->streams);
    ytpi_table_free(&bus->stream_of_id);
    ytpi_table_free(&bus->stream_of_pair);
    ytpi_mutex_destroy(&bus->lock);
    ytpi_index_destroy_chains(&bus->index);
    ytp_yamal_release(bus->y);
    ytpi_plat_free(bus);
}

ytp_yamal_t *ytp_bus_yamal(ytp_bus_t *bus)
{
    return bus->y;
}

size_t ytp_bus_max_data(const ytp_bus_t *bus)
{
    return ytp_yamal_max_payload(bus->y) - ytpi_data_at(bus->y);
}

/* --- declaring --- */

static int check_name(const ytp_bus_t *bus, const char *name, size_t len, ytp_error_t *err)
{
    if (len && memchr(name, 0, len))
        return ytpi_fail(err, YTP_ERR_INVALID, bus->y->path, "a name must not contain a NUL byte");
    if (len > ytp_bus_max_data(bus))
        return ytpi_fail(err, YTP_ERR_TOOLARGE, bus->y->path, "a name of %zu bytes does not fit", len);
    return YTP_OK;
}

/* Appends one control message; peer 0 announces a peer. */
static int say(ytp_bus_t *bus, uint64_t peer, uint64_t channel, uint64_t time, const void *text, size_t len,
               ytp_error_t *err)
{
    size_t fields = peer == 0 ? 8 : YTPI_DATA_AT_YTP;
    uint64_t offset;
    void *payload = NULL;

    YTPI_TRY(ytpi_bus_check_sound(bus, err));
    YTPI_TRY(ytp_yamal_reserve(bus->y, fields + len, &payload, &offset, err));
    uint8_t *p = payload;
    ytpi_put_be64(p, peer);
    if (peer != 0) {
        ytpi_put_be64(p + 8, channel);
        ytpi_put_be64(p + 16, time);
    }
    if (len)
        memcpy(p + fields, text, len);
    return ytpi_publish(bus->y, 0, offset, offset, err);
}

static int declare_locked(ytp_bus_t *bus, ytpi_names_t *names, uint64_t announcer, uint64_t time, const char *name,
                          size_t len, uint64_t *id, ytp_error_t *err)
{
    size_t number = ytpi_names_find(names, name, len);

    if (number == YTPI_NONE) {
        YTPI_TRY(ytpi_bus_scan(bus, YTPI_GOAL_END, 0, err));
        number = ytpi_names_find(names, name, len);
    }
    if (number == YTPI_NONE && bus->y->yamal8) {
        /* YAMAL001 announces (peer, channel) pairs; a lone name is known to this handle only. */
        if (!ytpi_names_add(names, name, len))
            return ytpi_fail(err, YTP_ERR_NOMEM, bus->y->path, "out of memory for names");
        number = names->count - 1;
    }
    if (number == YTPI_NONE) {
        YTPI_TRY(say(bus, announcer, YTP_CHANNEL_ANNOUNCE, time, name, len, err));
        YTPI_TRY(ytpi_bus_scan(bus, YTPI_GOAL_END, 0, err));
        number = ytpi_names_find(names, name, len);
        if (number == YTPI_NONE)
            return ytpi_fail(err, YTP_ERR_CORRUPT, bus->y->path, "our own announcement can not be found");
    }
    *id = YTP_ID_FIRST + number;
    return YTP_OK;
}

int ytp_bus_peer(ytp_bus_t *bus, const char *name, size_t len, uint64_t *peer, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(bus->y, err));
    YTPI_TRY(check_name(bus, name, len, err));
    ytpi_mutex_lock(&bus->lock);
    int rc = declare_locked(bus, &bus->peers, 0, 0, name, len, peer, err);
    ytpi_mutex_unlock(&bus->lock);
    return rc;
}

int ytp_bus_channel(ytp_bus_t *bus, uint64_t peer, uint64_t time, const char *name, size_t len, uint64_t *channel,
                    ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(bus->y, err));
    YTPI_TRY(check_name(bus, name, len, err));
    if (peer < YTP_ID_FIRST)
        return ytpi_fail(err, YTP_ERR_INVALID, bus->y->path, "%" PRIu64 " is not the id of a peer", peer);
    ytpi_mutex_lock(&bus->lock);
    int rc = declare_locked(bus, &bus->channels, peer, time, name, len, channel, err);
    ytpi_mutex_unlock(&bus->lock);
    return rc;
}

static int find(ytp_bus_t *bus, ytpi_names_t *names, const char *name, size_t len, uint64_t *id, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(bus->y, err));
    ytpi_mutex_lock(&bus->lock);
    size_t number = ytpi_names_find(names, name, len);
    int rc = YTP_OK;
    if (number == YTPI_NONE) {
        rc = ytpi_bus_scan(bus, YTPI_GOAL_END, 0, err);
        number = ytpi_names_find(names, name, len);
    }
    ytpi_mutex_unlock(&bus->lock);
    if (rc == YTP_OK && number == YTPI_NONE)
        return ytpi_fail(err, YTP_ERR_NOTFOUND, bus->y->path, "nobody has announced '%.*s'",
                         (int)(len < 100 ? len : 100), name);
    *id = YTP_ID_FIRST + number;
    return rc;
}

int ytp_bus_find_peer(ytp_bus_t *bus, const char *name, size_t len, uint64_t *peer, ytp_error_t *err)
{
    return find(bus, &bus->peers, name, len, peer, err);
}

int ytp_bus_find_channel(ytp_bus_t *bus, const char *name, size_t len, uint64_t *channel, ytp_error_t *err)
{
    return find(bus, &bus->channels, name, len, channel, err);
}

static int name_of(ytp_bus_t *bus, ytpi_names_t *names, ytpi_goal_t goal, uint64_t id, ytp_span_t *name,
                   ytp_error_t *err)
{
    int rc = YTP_OK;
    bool found = false;

    /* No check of the handle: names of messages in hand are wanted after a close too. */
    ytpi_mutex_lock(&bus->lock);
    if (id >= YTP_ID_FIRST) {
        uint64_t number = id - YTP_ID_FIRST;
        if (number >= names->count)
            rc = ytpi_bus_scan(bus, goal, number, err);
        found = rc == YTP_OK && number < names->count;
        if (found) {
            name->ptr = names->bytes[number];
            name->len = names->lens[number];
        }
    }
    ytpi_mutex_unlock(&bus->lock);
    if (rc == YTP_OK && !found)
        return ytpi_fail(err, YTP_ERR_NOTFOUND, bus->y->path, "nobody has announced id %" PRIu64, id);
    return rc;
}

int ytp_bus_peer_name(ytp_bus_t *bus, uint64_t peer, ytp_span_t *name, ytp_error_t *err)
{
    return name_of(bus, &bus->peers, YTPI_GOAL_PEER, peer, name, err);
}

int ytp_bus_channel_name(ytp_bus_t *bus, uint64_t channel, ytp_span_t *name, ytp_error_t *err)
{
    return name_of(bus, &bus->channels, YTPI_GOAL_CHANNEL, channel, name, err);
}

int ytp_bus_refresh(ytp_bus_t *bus, size_t *peers, size_t *channels, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(bus->y, err));
    ytpi_mutex_lock(&bus->lock);
    int rc = ytpi_bus_scan(bus, YTPI_GOAL_END, 0, err);
    *peers = bus->peers.count;
    *channels = bus->channels.count;
    ytpi_mutex_unlock(&bus->lock);
    return rc;
}

/* --- subscriptions and directories --- */

int ytp_bus_subscribe(ytp_bus_t *bus, uint64_t peer, uint64_t time, const char *pattern, size_t len, bool *added,
                      ytp_error_t *err)
{
    bool is_new = false;

    YTPI_TRY(ytpi_usable(bus->y, err));
    YTPI_TRY(check_name(bus, pattern, len, err));
    ytpi_mutex_lock(&bus->lock);
    int rc = ytpi_bus_scan(bus, YTPI_GOAL_END, 0, err);
    if (rc == YTP_OK && bus->y->yamal8) {
        rc = ytpi_streams_subscribe(bus, pattern, len, &is_new, err);
    } else if (rc == YTP_OK && !find_subscription(bus, peer, pattern, len)) {
        is_new = true;
        rc = say(bus, peer, YTP_CHANNEL_SUBSCRIBE, time, pattern, len, err);
    }
    ytpi_mutex_unlock(&bus->lock);
    if (added)
        *added = is_new && rc == YTP_OK;
    return rc;
}

int ytp_bus_directory(ytp_bus_t *bus, uint64_t peer, uint64_t time, const char *text, size_t len, bool *added,
                      ytp_error_t *err)
{
    bool is_new = false;

    YTPI_TRY(ytpi_usable(bus->y, err));
    if (bus->y->yamal8)
        return ytpi_fail(err, YTP_ERR_INVALID, bus->y->path, "YAMAL001 files have no directory messages");
    if (len > ytp_bus_max_data(bus))
        return ytpi_fail(err, YTP_ERR_TOOLARGE, bus->y->path, "a directory of %zu bytes does not fit", len);
    ytpi_mutex_lock(&bus->lock);
    int rc = ytpi_bus_scan(bus, YTPI_GOAL_END, 0, err);
    if (rc == YTP_OK) {
        ytpi_said_t *before = find_directory(bus, peer, topic_of(text, len));
        is_new = !before || before->len != len || memcmp(before->text, text, len) != 0;
        if (is_new)
            rc = say(bus, peer, YTP_CHANNEL_DIRECTORY, time, text, len, err);
    }
    ytpi_mutex_unlock(&bus->lock);
    if (added)
        *added = is_new && rc == YTP_OK;
    return rc;
}

bool ytp_pattern_matches(const char *pattern, size_t pattern_len, const char *name, size_t len)
{
    if (pattern_len == 1 && pattern[0] == '/')
        return true;
    if (pattern_len && pattern[pattern_len - 1] == '/')
        return len >= pattern_len && memcmp(pattern, name, pattern_len) == 0;
    return len == pattern_len && memcmp(pattern, name, len) == 0;
}
