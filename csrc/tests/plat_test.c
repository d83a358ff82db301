/* The platform layer where nothing above it goes: temporary names, short reads, injected failures. */
#include "plat.h"

#include <sys/mman.h>

#include "harness.h"

TEST(temporary_files_are_exclusive_and_private)
{
    char temp[PATH_MAX + 400], other[PATH_MAX + 400];
    const char *path = scratch("temp");
    struct stat st;
    int fd, second;

    CHECK_EQ(ytpi_plat_open_temp(path, 0640, temp, sizeof temp, &fd), 0);
    CHECK_EQ(ytpi_plat_open_temp(path, 0640, other, sizeof other, &second), 0);
    CHECK(strcmp(temp, other) != 0);
    CHECK_EQ(fstat(fd, &st), 0);
    CHECK_EQ(st.st_mode & 07777, 0640);
    CHECK_EQ(ytpi_plat_publish(fd, temp, path), 0);
    CHECK_EQ(ytpi_plat_publish(second, other, path), EEXIST);
    CHECK_EQ(scratch_count(), 1); /* both temporary names are gone */
    ytpi_plat_close(fd);
    ytpi_plat_close(second);
    CHECK_EQ(ytpi_plat_open_temp(path, 0600, temp, 10, &fd), ENAMETOOLONG);
}

TEST(reading_stops_at_the_end)
{
    const char *path = scratch("read");
    char buf[16];
    size_t got;
    int fd;

    fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK_EQ(write(fd, "0123456789", 10), 10);
    CHECK_EQ(ytpi_plat_read(fd, 4, buf, sizeof buf, &got), 0);
    CHECK_BYTES(buf, got, "456789");
    CHECK_EQ(ytpi_plat_read(fd, 100, buf, sizeof buf, &got), 0);
    CHECK_EQ(got, 0);
    ytpi_plat_close(fd);
    CHECK_EQ(ytpi_plat_read(fd, 0, buf, sizeof buf, &got), EBADF);
    CHECK_EQ(ytpi_plat_size(fd, &(uint64_t){0}, NULL), EBADF);
    CHECK_EQ(ytpi_plat_sync(fd), EBADF);
    CHECK(ytpi_plat_allocate(fd, 0, 4096) == EBADF);
    CHECK(!ytpi_plat_unlinked(fd, path));
}

TEST(waiting_on_a_word)
{
    ytpi_a32 word = 5;

    CHECK_EQ(ytpi_plat_wait(&word, 6, 1000000000), EAGAIN);
    CHECK_EQ(ytpi_plat_wait(&word, 5, 1000), ETIMEDOUT);
    ytpi_plat_wake_all(&word); /* nobody is there */
}

TEST(memory_calls_that_can_not_work)
{
    void *base;

    CHECK_EQ(ytpi_plat_reserve_range(SIZE_MAX & ~(size_t)4095, &base), ENOMEM);
    CHECK_EQ(ytpi_plat_reserve_range(8192, &base), 0);
    CHECK_EQ(ytpi_plat_map(base, 4096, -1, 0, true), EBADF);
    CHECK(ytpi_plat_populate(base, 4096, true) != 0); /* no access there */
    CHECK(ytpi_plat_map_zeros(base, 4096, true));
    CHECK(ytpi_plat_populate(base, 4096, true) == 0 || errno == EINVAL);
    *(volatile char *)base = 1;
    CHECK(ytpi_plat_map_zeros((char *)base + 4096, 4096, false));
    CHECK_EQ(((volatile char *)base)[4096], 0);
    ytpi_plat_unmap(base, 8192);
    CHECK_EQ(ytpi_plat_msync(base, 4096), ENOMEM);
    CHECK(!ytpi_plat_map_zeros((void *)1, 4096, true));
}

TEST(allocating_in_shared_memory_fills_every_page_and_keeps_what_is_there)
{
    const off_t mib = 1 << 20;
    struct stat st;
    char text[6];
    int fd = memfd_create("pages", 0);

    CHECK(fd >= 0);
    CHECK_EQ(pwrite(fd, "before", 6, 3 * mib), 6);
    CHECK_EQ(ytpi_plat_allocate(fd, (uint64_t)(3 * mib), (uint64_t)(9 * mib)), 0); /* huge pages in the middle only */
    CHECK_EQ(fstat(fd, &st), 0);
    CHECK_EQ(st.st_size, 9 * mib);
    CHECK_EQ(st.st_blocks * 512, 6 * mib);
    CHECK_EQ(ytpi_plat_allocate(fd, 0, (uint64_t)(8 * mib)), 0); /* never shrinks */
    CHECK_EQ(fstat(fd, &st), 0);
    CHECK_EQ(st.st_size, 9 * mib);
    CHECK_EQ(st.st_blocks * 512, 9 * mib);
    CHECK_EQ(pread(fd, text, 6, 3 * mib), 6);
    CHECK_BYTES(text, 6, "before");
    close(fd);
}

TEST(large_ranges_begin_where_a_huge_page_can)
{
    size_t huge = (size_t)2 << 20;
    void *bases[3];

    for (int i = 0; i < 3; i++) {
        CHECK_EQ(ytpi_plat_reserve_range(huge + 4096, &bases[i]), 0);
        CHECK_EQ((uintptr_t)bases[i] % huge, 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(ytpi_plat_map_zeros((char *)bases[i] + huge, 4096, true)); /* the end is part of it */
        ytpi_plat_unmap(bases[i], huge + 4096);
    }
}

TEST(who_and_when)
{
    uint8_t id[16], again[16];

    ytpi_plat_boot_id(id);
    ytpi_plat_boot_id(again);
    CHECK(memcmp(id, again, 16) == 0);
    CHECK_EQ(ytpi_plat_pid(), getpid());
    CHECK(ytpi_plat_realtime_ns() > (uint64_t)1700000000000000000);
    uint64_t before = ytpi_plat_monotonic_ns();
    CHECK(ytpi_plat_monotonic_ns() >= before);
    CHECK_EQ(ytpi_plat_page_size(), sysconf(_SC_PAGESIZE));
    ytpi_inject_fail(1, EMFILE); /* without the proc file system the id is zero */
    ytpi_plat_boot_id(id);
    ytpi_inject_fail(0, 0);
    for (int i = 0; i < 16; i++)
        CHECK_EQ(id[i], 0);
}

TEST(the_nth_call_fails_once)
{
    ytpi_inject_fail(3, EIO);
    for (int i = 1; i <= 5; i++) {
        void *p = ytpi_plat_alloc(8);
        CHECK_EQ(p == NULL, i == 3);
        ytpi_plat_free(p);
    }
    CHECK_EQ(ytpi_inject_calls(), 5);
    ytpi_inject_fail(0, 0);
    CHECK_EQ(ytpi_inject_calls(), 0);
}

TESTS(T(temporary_files_are_exclusive_and_private), T(reading_stops_at_the_end), T(waiting_on_a_word),
      T(memory_calls_that_can_not_work), T(allocating_in_shared_memory_fills_every_page_and_keeps_what_is_there),
      T(large_ranges_begin_where_a_huge_page_can), T(who_and_when), T(the_nth_call_fails_once))
