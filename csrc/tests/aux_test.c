/* The aux block: built into new files, believed only when every byte of its guarded part is right. */
#include "aux.h"

#include "harness.h"
#include "yamal.h"

typedef struct layout {
    ytp_format_t format;
    uint64_t node, base;
} layout_t;

static const layout_t layouts[] = {{YTP_FORMAT_YTP, 32, 64}, {YTP_FORMAT_YAMAL8, 536, 576}};

static bool has_aux(const char *path)
{
    ytp_file_info_t info;
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    OK(ytp_yamal_info(y, &info, &fault));
    ytp_yamal_release(y);
    return info.has_aux;
}

static const char *new_file(ytp_format_t format)
{
    const char *path = scratch("aux");
    ytp_yamal_release(open_yamal(path, YTP_OPEN_NEW, format));
    return path;
}

TEST(new_files_carry_one)
{
    for (int i = 0; i < 2; i++) {
        const char *path = new_file(layouts[i].format);
        uint64_t header = layouts[i].format == YTP_FORMAT_YTP ? 24 : 32;
        CHECK(has_aux(path));
        CHECK_EQ(peek64(path, layouts[i].node), 4096 - layouts[i].node - header);
        CHECK_EQ(peek64(path, layouts[i].node + 8), 0);
        CHECK_EQ(peek64(path, layouts[i].node + 16), layouts[i].node);
        CHECK_EQ(peek64(path, layouts[i].base) & 0xFF, 'Y');
    }
}

TEST(any_change_of_the_guarded_bytes_makes_it_nothing)
{
    for (int i = 0; i < 2; i++) {
        const char *path = new_file(layouts[i].format);
        for (uint64_t at = layouts[i].base; at < layouts[i].base + 60; at += 4) {
            uint64_t before = peek64(path, at);
            poke64(path, at, before ^ 1u << 7);
            if (has_aux(path))
                FAIL("byte %" PRIu64 " of the block can change", at - layouts[i].base);
            poke64(path, at, before);
        }
        CHECK(has_aux(path));
    }
}

TEST(a_committed_node_there_is_not_ours)
{
    for (int i = 0; i < 2; i++) {
        const char *path = new_file(layouts[i].format);
        const uint64_t fields[] = {0, 8, 16};
        for (int k = 0; k < 3; k++) {
            uint64_t at = layouts[i].node + fields[k], before = peek64(path, at);
            poke64(path, at, before + 8);
            CHECK(!has_aux(path));
            poke64(path, at, before);
        }
        CHECK(has_aux(path));
    }
}

static void forge_stretch(const char *path, uint64_t base, uint32_t stretch)
{
    ytpi_aux_block_t block;
    int fd = open(path, O_RDWR);

    CHECK_EQ(pread(fd, &block, sizeof block, (off_t)base), sizeof block);
    block.stretch = ytpi_le32(stretch);
    block.crc = ytpi_le32(ytpi_crc32c(0, &block, offsetof(ytpi_aux_block_t, crc)));
    CHECK_EQ(pwrite(fd, &block, sizeof block, (off_t)base), sizeof block);
    close(fd);
}

TEST(an_absurd_stretch_is_not_believed)
{
    const char *path = new_file(YTP_FORMAT_YTP);

    forge_stretch(path, 64, 15);
    CHECK(!has_aux(path));
    forge_stretch(path, 64, (1u << 20) + 1);
    CHECK(!has_aux(path));
    forge_stretch(path, 64, 16);
    CHECK(has_aux(path));
}

TESTS(T(new_files_carry_one), T(any_change_of_the_guarded_bytes_makes_it_nothing),
      T(a_committed_node_there_is_not_ours), T(an_absurd_stretch_is_not_believed))
