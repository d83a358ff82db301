/* The bus handle: a container plus the names announced in it. */
#ifndef YTPI_BUS_H
#define YTPI_BUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index.h"
#include "mutex.h"
#include "names.h"
#include "yamal.h"
#include "ytp/bus.h"

/* Sizes of the fields in front of the data of a message. */
#define YTPI_DATA_AT_YTP 24u    /* peer, channel, time */
#define YTPI_DATA_AT_YAMAL8 16u /* time, stream */

/* A YAMAL001 stream; duplicates of an announcement map to the number of the original. */
typedef struct ytpi_stream {
    uint64_t id;
    uint64_t node; /* of the announcement */
    size_t peer;
    size_t channel;
} ytpi_stream_t;

/* Something said before that must not be said twice: a subscription or a directory. */
typedef struct ytpi_said {
    uint64_t peer;
    const uint8_t *text; /* in the mapped file */
    size_t len;
    const uint8_t *topic; /* directories: the value of CHANNEL, in the mapped file */
    size_t topic_len;
} ytpi_said_t;

typedef struct ytpi_said_list {
    ytpi_said_t *items;
    size_t count;
    size_t room;
    ytpi_table_t table; /* hash of (peer, text) or (peer, topic) to the newest item; collisions fall back to a scan */
} ytpi_said_list_t;

struct ytp_bus {
    ytp_yamal_t *y;
    ytpi_mutex_t lock; /* everything below */
    uint64_t scanned;  /* position up to which the control list is in the tables */
    ytpi_names_t peers;
    ytpi_names_t channels;
    ytpi_said_list_t subscriptions;
    ytpi_said_list_t directories;
    ytpi_stream_t *streams;
    size_t stream_count;
    size_t stream_room;
    ytpi_table_t stream_of_id;   /* id -> stream */
    ytpi_table_t stream_of_pair; /* peer << 32 | channel -> stream */
    ytpi_index_t index;
    bool sound; /* the data list was walked to its tail once: appending to it is safe */
};

static inline size_t ytpi_data_at(const ytp_yamal_t *y)
{
    return y->yamal8 ? YTPI_DATA_AT_YAMAL8 : YTPI_DATA_AT_YTP;
}

/* Reads announcements until `enough` holds or the end; call with the lock held. */
typedef enum ytpi_goal { YTPI_GOAL_END, YTPI_GOAL_PEER, YTPI_GOAL_CHANNEL, YTPI_GOAL_STREAM } ytpi_goal_t;
int ytpi_bus_scan(ytp_bus_t *bus, ytpi_goal_t goal, uint64_t number_or_id, ytp_error_t *err);

/* Takes one node of a YAMAL000 list into the tables if it is a control message. */
int ytpi_bus_note_node(ytp_bus_t *bus, uint64_t offset, uint64_t size, ytp_error_t *err);

/* index.c: the names that the index knows of, and the position up to which it does. */
int ytpi_index_names(ytp_bus_t *bus, uint64_t *position, ytp_error_t *err);
/* index.c: what the page supplier does after its work. */
void ytpi_index_on_supply(void *bus);

/* Once per handle, before its first append: after a power loss a list may end before the node that its hint names, or
 * lead to a node of which only a part is there, and what is appended behind that would be lost. Call with the lock
 * held. */
int ytpi_bus_check_sound(ytp_bus_t *bus, ytp_error_t *err);

/* streams.c: the scan of the announcement list of YAMAL001. */
int ytpi_streams_scan(ytp_bus_t *bus, ytpi_goal_t goal, uint64_t id, ytp_error_t *err);
/* streams.c: whether a node of the data list is a message of a stream that was announced; call with the lock held. */
int ytpi_streams_check(ytp_bus_t *bus, uint64_t offset, uint64_t size, ytp_error_t *err);
int ytpi_streams_announce(ytp_bus_t *bus, size_t peer, size_t channel, const char *encoding, size_t len, uint64_t *id,
                          ytp_error_t *err);
int ytpi_streams_subscribe(ytp_bus_t *bus, const char *pattern, size_t len, bool *added, ytp_error_t *err);

/* Number of a stream by id, reading announcements when it is unknown; takes the lock. */
int ytpi_bus_stream_number(ytp_bus_t *bus, uint64_t id, uint64_t at, ytpi_stream_t *out, ytp_error_t *err);

static inline uint64_t ytpi_pair(size_t peer, size_t channel)
{
    return (uint64_t)peer << 32 | (uint64_t)channel;
}

#endif
