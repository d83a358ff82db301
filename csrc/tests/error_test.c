/* Error codes and texts. */
#include "error.h"

#include "harness.h"

TEST(every_code_has_its_own_text)
{
    for (int a = YTP_ERR_HANDLE; a <= YTP_END_CLOSED; a++)
        for (int b = YTP_ERR_HANDLE; b < a; b++)
            CHECK(strcmp(ytp_strerror(a), ytp_strerror(b)) != 0);
    CHECK(strcmp(ytp_strerror(-99), "unknown error") == 0);
    CHECK(strcmp(ytp_strerror(99), "unknown error") == 0);
}

TEST(texts_name_file_and_offset)
{
    CHECK_EQ(ytpi_fail_at(&fault, YTP_ERR_CORRUPT, "/some/file", 4096, "bad %s", "link"), YTP_ERR_CORRUPT);
    CHECK_EQ(fault.code, YTP_ERR_CORRUPT);
    CHECK_EQ(fault.offset, 4096);
    CHECK_EQ(fault.sys_errno, 0);
    CHECK_BYTES(fault.text, strlen(fault.text), "/some/file: offset 4096: bad link");
    CHECK_EQ(ytpi_fail(&fault, YTP_ERR_INVALID, "/f", "no"), YTP_ERR_INVALID);
    CHECK(fault.offset == YTP_NO_OFFSET);
    CHECK_BYTES(fault.text, strlen(fault.text), "/f: no");
}

TEST(system_errors_keep_their_number)
{
    CHECK_EQ(ytpi_fail_sys(&fault, ENOSPC, "/f", "growing"), YTP_ERR_NOSPACE);
    CHECK_EQ(fault.sys_errno, ENOSPC);
    CHECK_TEXT("/f: growing: ");
    CHECK_EQ(ytpi_fail_sys(&fault, EFBIG, "/f", "growing"), YTP_ERR_NOSPACE);
    CHECK_EQ(ytpi_fail_sys(&fault, EDQUOT, "/f", "growing"), YTP_ERR_NOSPACE);
    CHECK_EQ(ytpi_fail_sys(&fault, ENOMEM, "/f", "mapping"), YTP_ERR_NOMEM);
    CHECK_EQ(ytpi_fail_sys(&fault, EACCES, "/f", "opening"), YTP_ERR_SYS);
    CHECK_TEXT(strerror(EACCES));
}

TEST(nobody_needs_to_listen)
{
    CHECK_EQ(ytpi_fail(NULL, YTP_ERR_INVALID, "/f", "no"), YTP_ERR_INVALID);
    CHECK_EQ(ytpi_fail_at(NULL, YTP_ERR_CORRUPT, "/f", 1, "no"), YTP_ERR_CORRUPT);
    CHECK_EQ(ytpi_fail_sys(NULL, EIO, "/f", "no"), YTP_ERR_SYS);
}

TEST(long_texts_are_cut)
{
    char path[2000];

    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = 0;
    (void)ytpi_fail_at(&fault, YTP_ERR_CORRUPT, path, UINT64_MAX - 1, "%s", path);
    CHECK_EQ(strlen(fault.text), sizeof fault.text - 1);
    CHECK_TEXT("offset 18446744073709551614");
}

TEST(version_is_the_headers)
{
    CHECK(strcmp(ytp_version(), YTP_VERSION_STRING) == 0);
}

TESTS(T(every_code_has_its_own_text), T(texts_name_file_and_offset), T(system_errors_keep_their_number),
      T(nobody_needs_to_listen), T(long_texts_are_cut), T(version_is_the_headers))
