/* Opening, creating, closing and syncing a container. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "plat.h"
#include "yamal.h"

#define DEFAULT_PERMISSIONS 0600u
#define MAX_UNFINISHED (16 * YTP_PAGE_SIZE) /* more than any creator allocates before the header */

/* --- recognising a file --- */

static bool all_zero(const uint8_t *p, size_t len)
{
    return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

/* A file that nobody has finished creating is all zero except for the words that creation in place sets first. */
static int zero_from(int fd, uint64_t from, uint64_t size, bool *zero)
{
    uint8_t chunk[16384];
    size_t got = 0;

    *zero = true;
    for (uint64_t at = from; at < size && *zero; at += got) {
        uint64_t left = size - at;
        int e = ytpi_plat_read(fd, at, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk, &got);
        if (e)
            return e;
        if (got == 0)
            *zero = false;
        else
            *zero = all_zero(chunk, got);
    }
    return 0;
}

typedef struct file_kind {
    bool yamal8;
    bool unfinished; /* nothing there yet, or a creator died half way: to be filled in place */
} file_kind_t;

static int wrong_format(const char *path, ytp_format_t wanted, bool yamal8, ytp_error_t *err)
{
    if (wanted == YTP_FORMAT_YAMAL8 && !yamal8)
        return ytpi_fail(err, YTP_ERR_FORMAT, path, "is a YAMAL000 file, but yamal8 (YAMAL001) was asked for");
    if (wanted == YTP_FORMAT_YTP && yamal8)
        return ytpi_fail(err, YTP_ERR_FORMAT, path, "is a YAMAL001 file, but ytp (YAMAL000) was asked for");
    return YTP_OK;
}

/* Lists empty and the last word of creation, the closable mode, not written yet. */
static bool half_made_yamal8(const uint8_t *head)
{
    uint64_t counter = ytpi_get_le64(head + 8);

    if ((counter != 0 && counter != YTPI_FIRST_YAMAL8) || ytpi_get_le64(head + YTPI_CLOSABLE_AT) != 0)
        return false;
    for (unsigned list = 0; list < YTP_LIST_COUNT; list++)
        if (ytpi_get_le64(head + YTPI_HEAD8(list) + 8) != 0)
            return false;
    return true;
}

/* What the first bytes say. A foreign file must be recognised as such before anything touches it. */
static int recognise(int fd, uint64_t size, const ytp_open_options_t *o, const char *path, file_kind_t *kind,
                     ytp_error_t *err)
{
    uint8_t head[YTPI_FIRST_YAMAL8];
    size_t got;
    bool zero = size == 0, writing = o->mode != YTP_OPEN_READ;

    memset(head, 0, sizeof head);
    int e = ytpi_plat_read(fd, 0, head, sizeof head, &got);
    if (e)
        return ytpi_fail_sys(err, e, path, "reading the header");
    kind->yamal8 = memcmp(head, YTPI_MAGIC_YAMAL8, 8) == 0;
    kind->unfinished = false;
    if (kind->yamal8 || memcmp(head + 24, YTPI_MAGIC_YTP, 8) == 0) {
        YTPI_TRY(wrong_format(path, o->format, kind->yamal8, err));
        if (size < YTP_PAGE_SIZE)
            return ytpi_fail(err, YTP_ERR_TRUNCATED, path, "%" PRIu64 " bytes are less than the first page of %" PRIu64,
                             size, YTP_PAGE_SIZE);
        kind->unfinished = writing && kind->yamal8 && half_made_yamal8(head);
        return YTP_OK;
    }
    if (writing && size != 0 && size % YTP_PAGE_SIZE == 0 && size <= MAX_UNFINISHED) {
        uint64_t first = ytpi_get_le64(head);
        bool half_made = first == YTPI_FIRST_YTP && o->format != YTP_FORMAT_YAMAL8;
        if (first == 0 || half_made) {
            e = zero_from(fd, 8, size, &zero);
            if (e)
                return ytpi_fail_sys(err, e, path, "reading the file");
        }
    }
    if (writing && zero) {
        kind->unfinished = true;
        kind->yamal8 = o->format == YTP_FORMAT_YAMAL8;
        return YTP_OK;
    }
    if (size < YTPI_FIRST_YTP)
        return ytpi_fail(err, YTP_ERR_TRUNCATED, path, "%" PRIu64 " bytes are too few for a yamal file", size);
    return ytpi_fail(err, YTP_ERR_FORMAT, path, "is not a yamal file: no YAMAL000 or YAMAL001 magic");
}

/* --- creating --- */

static void build_header(uint8_t *page, bool yamal8, bool closable)
{
    if (!yamal8) {
        ytpi_put_le64(page, YTPI_AUX_END);
        memcpy(page + 24, YTPI_MAGIC_YTP, 8);
    } else {
        memcpy(page, YTPI_MAGIC_YAMAL8, 8);
        ytpi_put_le64(page + 8, YTPI_AUX_END);
        for (unsigned list = 0; list < YTP_LIST_COUNT; list++)
            ytpi_put_le64(page + YTPI_HEAD8(list) + 16, YTPI_HEAD8(list));
        page[YTPI_CLOSABLE_AT] = closable ? YTPI_CLOSABLE : YTPI_NOT_CLOSABLE;
    }
    ytpi_aux_build(page, yamal8);
}

static int write_first_page(int fd, const char *path, bool yamal8, bool closable, ytp_error_t *err)
{
    void *page;
    int e = ytpi_plat_allocate(fd, 0, YTP_PAGE_SIZE);
    if (e)
        return ytpi_fail_sys(err, e, path, "allocating the first page");
    e = ytpi_plat_reserve_range(YTP_PAGE_SIZE, &page);
    if (e)
        return ytpi_fail_sys(err, e, path, "reserving address space");
    e = ytpi_plat_map(page, YTP_PAGE_SIZE, fd, 0, true);
    if (e == 0)
        build_header(page, yamal8, closable);
    ytpi_plat_unmap(page, YTP_PAGE_SIZE);
    return e ? ytpi_fail_sys(err, e, path, "mapping the first page") : YTP_OK;
}

/* Builds a complete file under a temporary name and links it into place. EEXIST goes to *exists: somebody else was
 * faster, which is fine unless the caller wanted to be the creator. */
static int create(const char *path, const ytp_open_options_t *o, bool *exists, ytp_error_t *err)
{
    char temp[4096];
    int fd;

    *exists = false;
    int e = ytpi_plat_open_temp(path, o->permissions ? o->permissions : DEFAULT_PERMISSIONS, temp, sizeof temp, &fd);
    if (e)
        return ytpi_fail_sys(err, e, path, "creating");
    int rc = write_first_page(fd, path, o->format == YTP_FORMAT_YAMAL8, o->closable, err);
    if (rc != YTP_OK) {
        ytpi_plat_discard(temp);
    } else {
        e = ytpi_plat_publish(fd, temp, path);
        if (e == EEXIST)
            *exists = true;
        else if (e)
            rc = ytpi_fail_sys(err, e, path, "creating");
        if (e)
            ytpi_plat_discard(temp);
    }
    ytpi_plat_close(fd);
    return rc;
}

/* Fills an empty file in place, by the swaps that any number of processes may do at once. Such a file has no aux
 * block: nobody can tell who came first. */
static void fill_in_place(ytp_yamal_t *y, bool closable)
{
    uint64_t magic, zero = 0;
    ytpi_a64 *word = (ytpi_a64 *)(void *)ytpi_map_at(&y->map, 0);

    if (!y->yamal8) {
        (void)ytpi_cas_seq(&word[0], &zero, ytpi_le64(YTPI_FIRST_YTP));
        zero = 0;
        memcpy(&magic, YTPI_MAGIC_YTP, 8);
        (void)ytpi_cas_seq(&word[3], &zero, magic);
        return;
    }
    memcpy(&magic, YTPI_MAGIC_YAMAL8, 8);
    (void)ytpi_cas_seq(&word[0], &zero, magic);
    zero = 0;
    (void)ytpi_cas_seq(&word[1], &zero, ytpi_le64(YTPI_FIRST_YAMAL8));
    for (unsigned list = 0; list < YTP_LIST_COUNT; list++) {
        zero = 0;
        (void)ytpi_cas_seq(&ytpi_node_at(y, YTPI_HEAD8(list))->prev, &zero, ytpi_le64(YTPI_HEAD8(list)));
    }
    zero = 0;
    (void)ytpi_cas_seq(&word[YTPI_CLOSABLE_AT / 8], &zero, ytpi_le64(closable ? YTPI_CLOSABLE : YTPI_NOT_CLOSABLE));
}

/* --- opening --- */

static int check_mode_of_lists(ytp_yamal_t *y, const ytp_open_options_t *o, ytp_error_t *err)
{
    uint8_t mode = *ytpi_map_at(&y->map, YTPI_CLOSABLE_AT);

    if (mode > YTPI_NOT_CLOSABLE)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, YTPI_CLOSABLE_AT, "closable mode %u is impossible", mode);
    y->closable = mode == YTPI_CLOSABLE;
    if (o->closable && !y->closable && !y->readonly)
        return ytpi_fail(err, YTP_ERR_MISMATCH, y->path, "exists and was not created closable");
    return YTP_OK;
}

/* Everything after the descriptor is open and the format known. */
static int set_up(ytp_yamal_t *y, const ytp_open_options_t *o, bool unfinished, ytp_error_t *err)
{
    y->header = y->yamal8 ? sizeof(ytpi_node8_t) : sizeof(ytpi_node_t);
    y->first = y->yamal8 ? YTPI_FIRST_YAMAL8 : YTPI_FIRST_YTP;
    if (unfinished) {
        YTPI_TRY(ytpi_map_grow(&y->map, YTP_PAGE_SIZE, err));
        fill_in_place(y, o->closable);
        if (memcmp(ytpi_map_at(&y->map, y->yamal8 ? 0 : 24), y->yamal8 ? YTPI_MAGIC_YAMAL8 : YTPI_MAGIC_YTP, 8) != 0)
            return ytpi_fail(err, YTP_ERR_FORMAT, y->path, "somebody else is making a file of another format");
    } else {
        YTPI_TRY(ytpi_map_extend(&y->map, YTP_PAGE_SIZE, 0, err));
    }
    y->counter = (ytpi_a64 *)(void *)ytpi_map_at(&y->map, ytpi_counter_offset(y->yamal8));
    ytpi_store_relaxed(&y->seen, ytpi_le64(ytpi_load_acquire(y->counter)));
    if (y->yamal8)
        YTPI_TRY(check_mode_of_lists(y, o, err));
    ytpi_aux_find(y);
    return YTP_OK;
}

static int new_handle(const char *path, int fd, bool writable, const ytp_open_options_t *o, ytp_yamal_t **out,
                      ytp_error_t *err)
{
    size_t len = strlen(path) + 1;
    ytp_yamal_t *y = ytpi_plat_alloc(sizeof *y + len);

    if (!y)
        return ytpi_fail(err, YTP_ERR_NOMEM, path, "out of memory");
    memcpy(y->path, path, len);
    y->readonly = !writable;
    y->durable = writable && o->durable;
    ytpi_store_relaxed(&y->refs, 1);
    int rc = ytpi_map_init(&y->map, fd, y->path, writable, o->address_space, err);
    if (rc != YTP_OK) {
        ytpi_plat_free(y);
        return rc;
    }
    *out = y;
    return YTP_OK;
}

static int open_existing(const char *path, const ytp_open_options_t *o, int fd, ytp_yamal_t **out, ytp_error_t *err)
{
    uint64_t size;
    bool regular, writing = o->mode != YTP_OPEN_READ;
    file_kind_t kind = {0};

    int e = ytpi_plat_size(fd, &size, &regular);
    if (e)
        return ytpi_fail_sys(err, e, path, "looking at the file");
    if (!regular)
        return ytpi_fail(err, YTP_ERR_FORMAT, path, "is not a regular file");
    YTPI_TRY(recognise(fd, size, o, path, &kind, err));
    ytp_yamal_t *y = NULL;
    YTPI_TRY(new_handle(path, fd, writing, o, &y, err));
    y->yamal8 = kind.yamal8;
    int rc = set_up(y, o, kind.unfinished, err);
    if (rc == YTP_OK && !ytpi_supply_init(y, writing ? o->populate : 0))
        rc = ytpi_fail(err, YTP_ERR_NOMEM, path, "out of mutexes");
    if (rc != YTP_OK) {
        ytpi_map_destroy(&y->map);
        ytpi_plat_free(y);
        return rc;
    }
    *out = y;
    return YTP_OK;
}

int ytp_yamal_open(const char *path, const ytp_open_options_t *o, ytp_yamal_t **out, ytp_error_t *err)
{
    bool exists = false;
    int fd, e;

    *out = NULL;
    if (o->mode == YTP_OPEN_NEW) {
        YTPI_TRY(create(path, o, &exists, err));
        if (exists)
            return ytpi_fail_sys(err, EEXIST, path, "creating");
    }
    e = ytpi_plat_open(path, o->mode != YTP_OPEN_READ, &fd);
    if (e == ENOENT && o->mode == YTP_OPEN_CREATE) {
        YTPI_TRY(create(path, o, &exists, err));
        e = ytpi_plat_open(path, true, &fd);
    }
    if (e)
        return ytpi_fail_sys(err, e, path, "opening");
    int rc = open_existing(path, o, fd, out, err);
    if (rc != YTP_OK)
        ytpi_plat_close(fd);
    return rc;
}

/* --- life of a handle --- */

ytp_yamal_t *ytp_yamal_retain(ytp_yamal_t *y)
{
    ytpi_fetch_add(&y->refs, 1);
    return y;
}

void ytp_yamal_close(ytp_yamal_t *y)
{
    uint32_t open = 0;
    if (!ytpi_cas32_seq(&y->closed, &open, 1))
        return;
    ytpi_supply_stop(y);
    ytpi_mutex_lock(&y->map.lock);
    int fd = y->map.fd;
    y->map.fd = -1;
    ytpi_mutex_unlock(&y->map.lock);
    ytpi_plat_close(fd);
}

void ytp_yamal_release(ytp_yamal_t *y)
{
    if (!y || ytpi_fetch_add(&y->refs, (uint32_t)-1) != 1)
        return;
    ytp_yamal_close(y);
    ytpi_supply_destroy(y);
    ytpi_map_destroy(&y->map);
    ytpi_plat_free(y);
}

/* --- looking at a handle --- */

const char *ytp_yamal_path(const ytp_yamal_t *y)
{
    return y->path;
}

ytp_format_t ytp_yamal_format(const ytp_yamal_t *y)
{
    return y->yamal8 ? YTP_FORMAT_YAMAL8 : YTP_FORMAT_YTP;
}

bool ytp_yamal_readonly(const ytp_yamal_t *y)
{
    return y->readonly;
}

bool ytp_yamal_closable(const ytp_yamal_t *y)
{
    return y->closable;
}

int ytp_yamal_check(const ytp_yamal_t *y, ytp_error_t *err)
{
    return ytpi_usable(y, err);
}

/* The durable mark is meaningful when it was set since the last boot, or when it survived one (then exactly what it
 * names is known to be intact); it must name a linked node. */
static uint64_t durable_mark(ytp_yamal_t *y)
{
    if (!y->aux.block)
        return YTP_NO_OFFSET;
    uint64_t mark = ytpi_le64(ytpi_load_acquire(&y->aux.block->durable));
    if (mark == YTP_NO_OFFSET || ytp_yamal_seek(y, YTP_LIST_DATA, mark, NULL) != YTP_OK)
        return YTP_NO_OFFSET;
    return mark;
}

int ytp_yamal_info(ytp_yamal_t *y, ytp_file_info_t *out, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(y, err));
    ytpi_mutex_lock(&y->map.lock);
    int e = y->map.fd < 0 ? EBADF : ytpi_plat_size(y->map.fd, &out->file_size, NULL);
    out->unlinked = e == 0 && ytpi_plat_unlinked(y->map.fd, y->path);
    ytpi_mutex_unlock(&y->map.lock);
    if (e)
        return ytpi_fail_sys(err, e, y->path, "looking at the file");
    out->reserved_size = ytpi_le64(ytpi_load_relaxed(y->counter));
    out->mapped_size = ytpi_load_relaxed(&y->map.mapped);
    out->durable = durable_mark(y);
    out->has_aux = y->aux.block != NULL;
    out->created = y->aux.block ? ytpi_le64(y->aux.block->created) : 0;
    return YTP_OK;
}

/* --- durability --- */

int ytp_yamal_sync(ytp_yamal_t *y, ytp_error_t *err)
{
    uint64_t tail;

    YTPI_TRY(ytp_yamal_end(y, YTP_LIST_DATA, &tail, err));
    if (y->readonly)
        return ytpi_fail(err, YTP_ERR_READONLY, y->path, "opened read-only");
    uint64_t end = ytpi_load_relaxed(&y->map.mapped);
    for (uint64_t from = 0; from < end; from += y->map.range_size) {
        uint64_t len = end - from < y->map.range_size ? end - from : y->map.range_size;
        int e = ytpi_plat_msync(ytpi_map_at(&y->map, from), (size_t)len);
        if (e)
            return ytpi_fail_sys(err, e, y->path, "writing to disk");
    }
    int fd;
    ytpi_mutex_lock(&y->map.lock);
    fd = y->map.fd;
    int e = fd < 0 ? 0 : ytpi_plat_sync(fd);
    ytpi_mutex_unlock(&y->map.lock);
    if (e)
        return ytpi_fail_sys(err, e, y->path, "writing to disk");
    YTPI_TRY(ytpi_usable(y, err));
    if (y->aux.block) {
        /* DURABLE: pairs with the acquire load in durable_mark(). The mark itself reaches the disk with the next
         * sync, which errs on the safe side. */
        ytpi_store_release(&y->aux.block->durable, ytpi_le64(tail));
    }
    return YTP_OK;
}
