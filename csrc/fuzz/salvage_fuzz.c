/* Whatever can be saved of a file makes a sound one, with at least what a reader gets. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t choices[2];
    fuzz_file_t f, saved;
    ytp_error_t damage;
    ytp_salvage_report_t report;
    ytp_verify_report_t verified;

    if (!fuzz_take(data, size, choices, &f))
        return -1;
    ytp_bus_t *from = fuzz_open(&f, false);
    if (from) {
        saved = fuzz_file_make(0);
        ytp_bus_t *to = fuzz_open(&saved, true);
        MUST(to != NULL);
        memset(&damage, 0, sizeof damage);
        int rc = ytp_bus_salvage(from, to, true, NULL, NULL, &report, &damage, fuzz_err);
        if (rc == YTP_OK) {
            MUST(ytp_bus_verify(to, NULL, NULL, &verified, fuzz_err) == YTP_OK);
            MUST(verified.data_messages == report.copied);
            int64_t readable = fuzz_read_all(from);
            MUST(readable < 0 || (uint64_t)readable == report.copied);
        }
        ytp_bus_free(to);
        ytp_bus_free(from);
        fuzz_file_remove(&saved);
    }
    fuzz_file_remove(&f);
    return 0;
}
