/* Opening, creating and recognising files; what a handle tells; syncing. */
#include "harness.h"
#include "plat.h"
#include "yamal.h"

static int open_code(const char *path, ytp_open_mode_t mode, ytp_format_t format)
{
    ytp_open_options_t options = in_mode(mode, format);
    ytp_yamal_t *y = NULL;
    int rc = ytp_yamal_open(path, &options, &y, &fault);
    if (rc == YTP_OK)
        ytp_yamal_release(y);
    else
        CHECK(y == NULL);
    return rc;
}

static void write_file(const char *path, const void *bytes, size_t len, off_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, bytes, len), len);
    CHECK_EQ(ftruncate(fd, size), 0);
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat st;
    CHECK_EQ(stat(path, &st), 0);
    return st.st_size;
}

TEST(a_new_file_is_complete_and_private)
{
    const char *path = scratch("new.ytp");
    struct stat st;
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_ANY);

    CHECK_EQ(ytp_yamal_format(y), YTP_FORMAT_YTP);
    CHECK(!ytp_yamal_readonly(y));
    CHECK(strcmp(ytp_yamal_path(y), path) == 0);
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_mode & 07777, 0600);
    CHECK_EQ(st.st_size, YTP_PAGE_SIZE);
    CHECK_EQ(peek64(path, 0), 4096);
    CHECK_EQ(peek64(path, 8), 0);
    CHECK_EQ(peek64(path, 16), 0);
    ytp_yamal_release(y);
    CHECK_EQ(scratch_count(), 1); /* no temporary file is left */
}

TEST(permissions_are_the_callers)
{
    const char *path = scratch("mode.ytp");
    ytp_open_options_t options = in_mode(YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    ytp_yamal_t *y = NULL;
    struct stat st;

    options.permissions = 0664;
    OK(ytp_yamal_open(path, &options, &y, &fault));
    ytp_yamal_release(y);
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_mode & 07777, 0664);
}

TEST(modes_differ_in_what_must_exist)
{
    const char *path = scratch("modes");

    CODE(open_code(path, YTP_OPEN_READ, YTP_FORMAT_ANY), YTP_ERR_SYS);
    CHECK_EQ(fault.sys_errno, ENOENT);
    CODE(open_code(path, YTP_OPEN_WRITE, YTP_FORMAT_ANY), YTP_ERR_SYS);
    OK(open_code(path, YTP_OPEN_CREATE, YTP_FORMAT_ANY));
    OK(open_code(path, YTP_OPEN_CREATE, YTP_FORMAT_ANY));
    OK(open_code(path, YTP_OPEN_WRITE, YTP_FORMAT_ANY));
    OK(open_code(path, YTP_OPEN_READ, YTP_FORMAT_ANY));
    CODE(open_code(path, YTP_OPEN_NEW, YTP_FORMAT_ANY), YTP_ERR_SYS);
    CHECK_EQ(fault.sys_errno, EEXIST);
    CODE(open_code("/nonexistent-folder/x", YTP_OPEN_CREATE, YTP_FORMAT_ANY), YTP_ERR_SYS);
    CHECK_EQ(fault.sys_errno, ENOENT);
}

TEST(the_format_asked_for_must_be_there)
{
    const char *ours = scratch("a"), *theirs = scratch("b");

    OK(open_code(ours, YTP_OPEN_NEW, YTP_FORMAT_YTP));
    OK(open_code(theirs, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8));
    CODE(open_code(ours, YTP_OPEN_READ, YTP_FORMAT_YAMAL8), YTP_ERR_FORMAT);
    CODE(open_code(theirs, YTP_OPEN_READ, YTP_FORMAT_YTP), YTP_ERR_FORMAT);
    OK(open_code(theirs, YTP_OPEN_READ, YTP_FORMAT_YAMAL8));
    OK(open_code(theirs, YTP_OPEN_CREATE, YTP_FORMAT_ANY));
}

TEST(closable_is_a_property_of_the_file)
{
    const char *path = scratch("closable");
    ytp_open_options_t options = in_mode(YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    ytp_yamal_t *y = NULL;

    OK(ytp_yamal_open(path, &options, &y, &fault));
    ytp_yamal_release(y);
    options.mode = YTP_OPEN_WRITE;
    options.closable = true;
    CODE(ytp_yamal_open(path, &options, &y, &fault), YTP_ERR_MISMATCH);
    poke64(path, 528, 3);
    CODE(open_code(path, YTP_OPEN_READ, YTP_FORMAT_ANY), YTP_ERR_CORRUPT);
    CHECK_EQ(fault.offset, 528);
}

TEST(foreign_files_are_refused_and_left_alone)
{
    const char *path = scratch("foreign");
    char text[200];

    memset(text, 'x', sizeof text);
    for (int mode = YTP_OPEN_READ; mode <= YTP_OPEN_CREATE; mode++) {
        write_file(path, text, sizeof text, sizeof text);
        CODE(open_code(path, (ytp_open_mode_t)mode, YTP_FORMAT_ANY), YTP_ERR_FORMAT);
        CHECK_EQ(size_of(path), sizeof text);
        write_file(path, text, 10, 10);
        CODE(open_code(path, (ytp_open_mode_t)mode, YTP_FORMAT_ANY), YTP_ERR_TRUNCATED);
        CHECK_EQ(size_of(path), 10);
    }
    memset(text, 0, 100); /* zeros, then somebody's data */
    write_file(path, text, sizeof text, sizeof text);
    CHECK(open_code(path, YTP_OPEN_CREATE, YTP_FORMAT_ANY) < 0);
    CHECK_EQ(size_of(path), sizeof text);
    CHECK_EQ(peek64(path, 0), 0);
}

TEST(a_folder_or_device_is_not_a_file)
{
    (void)scratch("x");
    CODE(open_code(scratch_dir, YTP_OPEN_READ, YTP_FORMAT_ANY), YTP_ERR_FORMAT);
    CODE(open_code("/dev/zero", YTP_OPEN_CREATE, YTP_FORMAT_ANY), YTP_ERR_FORMAT);
    CODE(open_code(scratch_dir, YTP_OPEN_WRITE, YTP_FORMAT_ANY), YTP_ERR_SYS);
    CHECK_EQ(fault.sys_errno, EISDIR);
}

TEST(a_file_shorter_than_a_page_is_refused)
{
    const char *path = scratch("short");

    OK(open_code(path, YTP_OPEN_NEW, YTP_FORMAT_YTP));
    CHECK_EQ(truncate(path, 100000), 0);
    for (int mode = YTP_OPEN_READ; mode <= YTP_OPEN_CREATE; mode++) {
        CODE(open_code(path, (ytp_open_mode_t)mode, YTP_FORMAT_ANY), YTP_ERR_TRUNCATED);
        CHECK_EQ(size_of(path), 100000);
    }
    CHECK_EQ(truncate(path, 0), 0);
    CODE(open_code(path, YTP_OPEN_READ, YTP_FORMAT_ANY), YTP_ERR_TRUNCATED);
}

TEST(an_empty_file_is_filled_in_place)
{
    const ytp_format_t formats[] = {YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8};

    for (int i = 0; i < 2; i++) {
        const char *path = scratch("empty");
        ytp_file_info_t info;
        write_file(path, "", 0, 0);
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_WRITE, formats[i]);
        CHECK_EQ(ytp_yamal_format(y), formats[i]);
        OK(ytp_yamal_info(y, &info, &fault));
        CHECK(!info.has_aux);
        CHECK_EQ(info.reserved_size, formats[i] == YTP_FORMAT_YTP ? 32 : 536);
        append(y, 0, "first");
        ytp_yamal_release(y);
        OK(open_code(path, YTP_OPEN_READ, formats[i]));
    }
}

/* Creation in place by the rules of others, left by a process that died between its steps. */
TEST(a_creation_that_stopped_half_way_is_completed)
{
    static const struct {
        ytp_format_t format;
        uint64_t at[4], value[4];
    } stages[] = {
        {YTP_FORMAT_YTP, {0}, {0}},
        {YTP_FORMAT_YTP, {0}, {32}},
        {YTP_FORMAT_YAMAL8, {0}, {0}},
        {YTP_FORMAT_YAMAL8, {0}, {0x3130304C414D4159}}, /* "YAMAL001" */
        {YTP_FORMAT_YAMAL8, {0, 8}, {0x3130304C414D4159, 536}},
        {YTP_FORMAT_YAMAL8, {0, 8, 32}, {0x3130304C414D4159, 536, 16}},
    };

    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        const char *path = scratch("half");
        write_file(path, "", 0, (off_t)YTP_PAGE_SIZE);
        for (int k = 0; k < 4; k++)
            if (stages[i].value[k])
                poke64(path, stages[i].at[k], stages[i].value[k]);
        CHECK(open_code(path, YTP_OPEN_READ, YTP_FORMAT_ANY) < 0 || stages[i].value[0] > 32);
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_WRITE, stages[i].format);
        append(y, 0, "first");
        ytp_yamal_release(y);
        OK(open_code(path, YTP_OPEN_READ, stages[i].format));
    }
}

TEST(zeros_with_something_behind_them_are_somebodys)
{
    const uint64_t places[] = {8, 4096, YTP_PAGE_SIZE - 8};

    for (int i = 0; i < 3; i++) {
        const char *path = scratch("zeros");
        write_file(path, "", 0, (off_t)YTP_PAGE_SIZE);
        poke64(path, places[i], 1);
        CODE(open_code(path, YTP_OPEN_WRITE, YTP_FORMAT_ANY), YTP_ERR_FORMAT);
        poke64(path, 0, 32);
        CODE(open_code(path, YTP_OPEN_WRITE, YTP_FORMAT_ANY), YTP_ERR_FORMAT);
        CHECK_EQ(peek64(path, 24), 0);
    }
    const char *path = scratch("many-pages"); /* no creator allocates that much before the header */
    write_file(path, "", 0, (off_t)(20 * YTP_PAGE_SIZE));
    CODE(open_code(path, YTP_OPEN_WRITE, YTP_FORMAT_ANY), YTP_ERR_FORMAT);
}

TEST(a_yamal8_file_in_use_is_not_half_made)
{
    const char *path = scratch("in-use");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    append(y, 3, "something in a list");
    ytp_yamal_release(y);
    poke64(path, 528, 0); /* the mode was never written, but a list has grown */
    ytp_open_options_t options = in_mode(YTP_OPEN_WRITE, YTP_FORMAT_ANY);
    OK(ytp_yamal_open(path, &options, &y, &fault));
    CHECK(!ytp_yamal_closable(y));
    ytp_yamal_release(y);
}

TEST(information_about_the_file)
{
    const char *path = scratch("info");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_file_info_t info;

    append(y, 0, "text");
    OK(ytp_yamal_info(y, &info, &fault));
    CHECK_EQ(info.file_size, YTP_PAGE_SIZE);
    CHECK_EQ(info.reserved_size, 4096 + 32);
    CHECK_EQ(info.mapped_size, YTP_PAGE_SIZE);
    CHECK(info.has_aux);
    CHECK(!info.unlinked);
    CHECK(info.durable == YTP_NO_OFFSET);
    CHECK_EQ(unlink(path), 0);
    OK(ytp_yamal_info(y, &info, &fault));
    CHECK(info.unlinked);
    append(y, 0, "goes on");
    OK(open_code(path, YTP_OPEN_NEW, YTP_FORMAT_YTP)); /* another file of that name */
    OK(ytp_yamal_info(y, &info, &fault));
    CHECK(info.unlinked);
    ytp_yamal_release(y);
}

TEST(sync_moves_the_durable_mark)
{
    const ytp_format_t formats[] = {YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8};

    for (int i = 0; i < 2; i++) {
        const char *path = scratch("sync");
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, formats[i]);
        ytp_file_info_t info;
        uint64_t last = append(y, 0, "text");

        OK(ytp_yamal_sync(y, &fault));
        OK(ytp_yamal_info(y, &info, &fault));
        CHECK_EQ(info.durable, last);
        append(y, 0, "more");
        OK(ytp_yamal_info(y, &info, &fault));
        CHECK_EQ(info.durable, last);
        ytp_yamal_release(y);
        y = open_yamal(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
        OK(ytp_yamal_info(y, &info, &fault));
        CHECK_EQ(info.durable, last);
        CODE(ytp_yamal_sync(y, &fault), YTP_ERR_READONLY);
        ytp_yamal_release(y);
        /* A mark that names no node is not believed. */
        poke64(path, formats[i] == YTP_FORMAT_YTP ? 64 + 128 : 576 + 128, last + 8);
        y = open_yamal(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
        OK(ytp_yamal_info(y, &info, &fault));
        CHECK(info.durable == YTP_NO_OFFSET);
        ytp_yamal_release(y);
    }
}

TEST(references_keep_the_memory)
{
    ytp_yamal_t *y = open_yamal(scratch("refs"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    uint64_t position = ytp_yamal_begin(y, 0);
    ytp_node_t node;

    append(y, 0, "kept");
    OK(ytp_yamal_next(y, 0, &position, &node, &fault));
    CHECK(ytp_yamal_retain(y) == y);
    ytp_yamal_release(y);
    OK(ytp_yamal_check(y, &fault));
    CHECK_BYTES(node.payload, node.size, "kept");
    ytp_yamal_release(y);
    ytp_yamal_release(NULL);
}

TEST(a_path_can_be_too_long)
{
    char path[5000];

    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = 0;
    CODE(open_code(path, YTP_OPEN_CREATE, YTP_FORMAT_ANY), YTP_ERR_SYS);
    CHECK_EQ(fault.sys_errno, ENAMETOOLONG);
}

TEST(losing_the_race_to_create_is_no_error)
{
    /* The name is taken between the look and the link: the file that is there is used. */
    const char *path = scratch("race");
    ytp_open_options_t options = in_mode(YTP_OPEN_CREATE, YTP_FORMAT_ANY);
    ytp_yamal_t *y = NULL;

    OK(open_code(path, YTP_OPEN_NEW, YTP_FORMAT_YTP));
    ytpi_inject_fail(1, ENOENT); /* the first open does not see it */
    OK(ytp_yamal_open(path, &options, &y, &fault));
    ytpi_inject_fail(0, 0);
    ytp_yamal_release(y);
}

TESTS(T(a_new_file_is_complete_and_private), T(permissions_are_the_callers), T(modes_differ_in_what_must_exist),
      T(the_format_asked_for_must_be_there), T(closable_is_a_property_of_the_file),
      T(foreign_files_are_refused_and_left_alone), T(a_folder_or_device_is_not_a_file),
      T(a_file_shorter_than_a_page_is_refused), T(an_empty_file_is_filled_in_place),
      T(a_creation_that_stopped_half_way_is_completed), T(zeros_with_something_behind_them_are_somebodys),
      T(a_yamal8_file_in_use_is_not_half_made), T(information_about_the_file), T(sync_moves_the_durable_mark),
      T(references_keep_the_memory), T(a_path_can_be_too_long), T(losing_the_race_to_create_is_no_error))
