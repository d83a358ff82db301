/* make_seeds FOLDER: small files of this library, as inputs to begin fuzzing with. */
#include "fuzz.h"

static void write_input(const char *folder, const char *name, bool writable, const uint8_t *bytes, size_t size)
{
    uint8_t choices[2] = {(uint8_t)(CHOICE_GAP | ((size - 1) / YTP_PAGE_SIZE)), (uint8_t)(writable ? 0x0F : 0)};
    char path[4096];

    while (size > GAP_TO && bytes[size - 1] == 0)
        size--;
    (void)snprintf(path, sizeof path, "%s/%s-%s", folder, name, writable ? "w" : "r");
    FILE *input = fopen(path, "wb");
    MUST(input && fwrite(choices, 2, 1, input) == 1 && fwrite(bytes, GAP_FROM, 1, input) == 1);
    MUST(size == GAP_TO || fwrite(bytes + GAP_TO, size - GAP_TO, 1, input) == 1);
    MUST(fclose(input) == 0);
}

/* Reserves what no input has. Nobody looks at a reservation that is not committed. */
static void leave_gap(ytp_yamal_t *y)
{
    size_t header = YTP_PAGE_SIZE - ytp_yamal_max_payload(y);
    ytp_file_info_t info;
    ytp_error_t err;
    uint64_t offset;
    void *payload;

    MUST(ytp_yamal_info(y, &info, &err) == YTP_OK);
    MUST(ytp_yamal_reserve(y, GAP_TO - info.reserved_size - header, &payload, &offset, &err) == YTP_OK);
}

static void write_seed(const char *folder, const char *name, ytp_format_t format, unsigned messages, bool index,
                       bool close_it)
{
    ytp_open_options_t options;
    ytp_error_t err;
    ytp_bus_t *bus = NULL;
    ytp_writer_t writer;
    uint64_t peer, channel;
    fuzz_file_t f = {0, "seed"};

    memset(&options, 0, sizeof options);
    options.mode = YTP_OPEN_NEW;
    options.format = format;
    options.closable = format == YTP_FORMAT_YAMAL8;
    options.address_space = ADDRESS_SPACE;
    MUST(ytp_bus_open(f.path, &options, &bus, &err) == YTP_OK);
    leave_gap(ytp_bus_yamal(bus));
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
    write_input(folder, name, false, bytes, info.reserved_size);
    write_input(folder, name, true, bytes, info.reserved_size);
    ytp_bus_free(bus);
    fuzz_file_remove(&f);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    write_seed(argv[1], "ytp", YTP_FORMAT_YTP, 5, false, false);
    write_seed(argv[1], "ytp-sealed", YTP_FORMAT_YTP, 3, false, true);
    write_seed(argv[1], "ytp-index", YTP_FORMAT_YTP, 33, true, false);
    write_seed(argv[1], "yamal8", YTP_FORMAT_YAMAL8, 5, false, false);
    write_seed(argv[1], "yamal8-closed", YTP_FORMAT_YAMAL8, 3, false, true);
    write_seed(argv[1], "yamal8-index", YTP_FORMAT_YAMAL8, 33, true, false);
    return 0;
}
