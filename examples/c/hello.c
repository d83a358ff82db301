/* Writes three messages to a bus and reads everything that is in it: ./hello FILE
 *
 *   cc hello.c $(pkg-config --cflags --libs ytp) -o hello        or        cmake -B build && cmake --build build */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <ytp/ytp.h>

static uint64_t now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int write_some(ytp_bus_t *bus, ytp_error_t *err)
{
    static const char *const prices[] = {"101.25", "101.30", "101.20"};
    uint64_t peer, channel;
    ytp_writer_t writer;
    int rc;

    if ((rc = ytp_bus_peer(bus, "hello", 5, &peer, err)) < 0 ||
        (rc = ytp_bus_channel(bus, peer, now(), "md/IBM", 6, &channel, err)) < 0 ||
        (rc = ytp_bus_writer(bus, peer, channel, NULL, 0, &writer, err)) < 0)
        return rc;
    for (size_t i = 0; i < sizeof prices / sizeof *prices; i++) {
        /* Straight into the mapped file: nobody sees the message before the commit, nothing is copied after it. */
        size_t len = strlen(prices[i]);
        void *data;
        uint64_t offset;

        if ((rc = ytp_bus_reserve(bus, len, &data, &offset, err)) < 0)
            return rc;
        memcpy(data, prices[i], len);
        if ((rc = ytp_bus_commit(bus, &writer, now(), data, offset, err)) < 0)
            return rc;
    }
    return YTP_OK;
}

static int read_all(ytp_bus_t *bus, ytp_error_t *err)
{
    ytp_cursor_t *cursor;
    ytp_message_t message;
    int rc = ytp_cursor_new(bus, &cursor, err);

    if (rc < 0)
        return rc;
    while ((rc = ytp_cursor_next(cursor, &message, err)) == YTP_OK) {
        ytp_span_t channel;

        if ((rc = ytp_bus_channel_name(bus, message.channel, &channel, err)) < 0)
            break;
        printf("%" PRIu64 " %.*s %.*s\n", message.time, (int)channel.len, (const char *)channel.ptr, (int)message.len,
               (const char *)message.data);
    }
    ytp_cursor_free(cursor);
    return rc < 0 ? rc : YTP_OK;
}

int main(int argc, char **argv)
{
    ytp_open_options_t options = {.mode = YTP_OPEN_CREATE};
    ytp_bus_t *bus = NULL;
    ytp_error_t err;
    int rc;

    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    printf("libytp %s\n", ytp_version());
    rc = ytp_bus_open(argv[1], &options, &bus, &err);
    if (rc == YTP_OK)
        rc = write_some(bus, &err);
    if (rc == YTP_OK)
        rc = read_all(bus, &err);
    if (rc < 0)
        fprintf(stderr, "%s: %s\n", ytp_strerror(rc), err.text);
    ytp_bus_free(bus);
    return rc < 0;
}
