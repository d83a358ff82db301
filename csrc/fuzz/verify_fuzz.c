/* verify and the readers agree: a file that verifies is read without an error, to the same number of messages. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t choices[2];
    fuzz_file_t f;
    ytp_verify_report_t report;

    if (!fuzz_take(data, size, choices, &f))
        return -1;
    ytp_bus_t *bus = fuzz_open(&f, false);
    if (bus) {
        int rc = ytp_bus_verify(bus, NULL, NULL, &report, fuzz_err);
        MUST(rc <= YTP_OK);
        MUST(report.nodes <= YTP_LIST_COUNT * MAX_NODES);
        MUST((rc < 0) == (report.bad_offset != YTP_NO_OFFSET) || rc == YTP_ERR_TRUNCATED || rc == YTP_ERR_NOMEM);
        int64_t count = fuzz_read_all(bus);
        if (rc == YTP_OK)
            MUST(count == (int64_t)report.data_messages);
        ytp_bus_free(bus);
    }
    fuzz_file_remove(&f);
    return 0;
}
