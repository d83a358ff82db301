/* make_seeds FOLDER: small files of this library, as inputs to begin fuzzing with. */
#include <fcntl.h>

#include "fuzz.h"

static void write_seed(const char *folder, const char *name, ytp_format_t format, unsigned messages, bool index,
                       bool close_it)
{
    ytp_open_options_t options;
    ytp_error_t err;
    ytp_bus_t *bus = NULL;
    ytp_writer_t writer;
    uint64_t peer, channel;
    char path[4096], made[4096];

    snprintf(made, sizeof made, "%s/%s.ytp", folder, name);
    unlink(made);
    memset(&options, 0, sizeof options);
    options.mode = YTP_OPEN_NEW;
    options.format = format;
    options.closable = format == YTP_FORMAT_YAMAL8;
    options.address_space = 8 * YTP_PAGE_SIZE;
    MUST(ytp_bus_open(made, &options, &bus, &err) == YTP_OK);
    MUST(ytp_bus_peer(bus, "p", 1, &peer, &err) == YTP_OK);
    MUST(ytp_bus_channel(bus, peer, 0, "a/b", 3, &channel, &err) == YTP_OK);
    MUST(ytp_bus_writer(bus, peer, channel, NULL, 0, &writer, &err) == YTP_OK);
    for (unsigned i = 0; i < messages; i++)
        MUST(ytp_bus_write(bus, &writer, 10 * i, "message", i % 8, NULL, &err) == YTP_OK);
    MUST(ytp_bus_subscribe(bus, peer, 1, "a/", 2, NULL, &err) == YTP_OK);
    if (format == YTP_FORMAT_YTP)
        MUST(ytp_bus_directory(bus, peer, 2, "CHANNEL a/b\nAPP x\n", 18, NULL, &err) == YTP_OK);
    if (index)
        MUST(ytp_bus_index_update(bus, 0, &err) == YTP_OK);
    if (close_it && format == YTP_FORMAT_YAMAL8)
        MUST(ytp_yamal_close_list(ytp_bus_yamal(bus), 0, &err) == YTP_OK);
    if (close_it && format == YTP_FORMAT_YTP)
        MUST(ytp_yamal_seal(ytp_bus_yamal(bus), 3, &err) == YTP_OK);
    MUST(ytp_yamal_sync(ytp_bus_yamal(bus), &err) == YTP_OK);
    ytp_file_info_t info;
    MUST(ytp_yamal_info(ytp_bus_yamal(bus), &info, &err) == YTP_OK);
    const uint8_t *bytes = ytp_bus_at(bus, 0, info.reserved_size);
    MUST(bytes != NULL);
    for (unsigned writable = 0; writable < 2; writable++) {
        uint8_t choices[2] = {(uint8_t)((info.reserved_size - 1) / YTP_PAGE_SIZE), (uint8_t)(writable ? 0x0F : 0)};
        snprintf(path, sizeof path, "%s/%s-%s", folder, name, writable ? "w" : "r");
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        MUST(fd >= 0 && write(fd, choices, 2) == 2);
        MUST(write(fd, bytes, info.reserved_size) == (ssize_t)info.reserved_size);
        close(fd);
    }
    ytp_bus_free(bus);
    unlink(made);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    write_seed(argv[1], "ytp", YTP_FORMAT_YTP, 5, false, false);
    write_seed(argv[1], "ytp-sealed", YTP_FORMAT_YTP, 3, false, true);
    write_seed(argv[1], "ytp-index", YTP_FORMAT_YTP, 1500, true, false);
    write_seed(argv[1], "yamal8", YTP_FORMAT_YAMAL8, 5, false, false);
    write_seed(argv[1], "yamal8-closed", YTP_FORMAT_YAMAL8, 3, false, true);
    write_seed(argv[1], "yamal8-index", YTP_FORMAT_YAMAL8, 1200, true, false);
    return 0;
}
