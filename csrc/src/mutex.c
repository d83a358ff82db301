/* See mutex.h. */
#include "mutex.h"

#include <stddef.h>

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static ytpi_mutex_t *newest;

static void before_fork(void)
{
    pthread_mutex_lock(&registry_lock);
    for (ytpi_mutex_t *m = newest; m; m = m->older)
        pthread_mutex_lock(&m->inner);
}

static void after_fork(void)
{
    for (ytpi_mutex_t *m = newest; m; m = m->older)
        pthread_mutex_unlock(&m->inner);
    pthread_mutex_unlock(&registry_lock);
}

static void register_handlers(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

bool ytpi_mutex_init(ytpi_mutex_t *m)
{
    pthread_once(&once, register_handlers);
    if (pthread_mutex_init(&m->inner, NULL) != 0)
        return false;
    pthread_mutex_lock(&registry_lock);
    m->newer = NULL;
    m->older = newest;
    if (newest)
        newest->newer = m;
    newest = m;
    pthread_mutex_unlock(&registry_lock);
    return true;
}

void ytpi_mutex_destroy(ytpi_mutex_t *m)
{
    pthread_mutex_lock(&registry_lock);
    if (m->newer)
        m->newer->older = m->older;
    else
        newest = m->older;
    if (m->older)
        m->older->newer = m->newer;
    pthread_mutex_unlock(&registry_lock);
    (void)pthread_mutex_destroy(&m->inner);
}

void ytpi_mutex_lock(ytpi_mutex_t *m)
{
    pthread_mutex_lock(&m->inner);
}

void ytpi_mutex_unlock(ytpi_mutex_t *m)
{
    pthread_mutex_unlock(&m->inner);
}
