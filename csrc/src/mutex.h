/* Mutexes that survive fork(): before a fork every one is taken, newest first, and released on both sides,
 * so that the child never inherits a lock from a thread it does not have.
 *
 * Lock order therefore is creation order reversed: code that holds one lock may take an older one only. */
#ifndef YTPI_MUTEX_H
#define YTPI_MUTEX_H

#include <pthread.h>
#include <stdbool.h>

typedef struct ytpi_mutex {
    pthread_mutex_t inner;
    struct ytpi_mutex *newer;
    struct ytpi_mutex *older;
} ytpi_mutex_t;

bool ytpi_mutex_init(ytpi_mutex_t *m);
void ytpi_mutex_destroy(ytpi_mutex_t *m);
void ytpi_mutex_lock(ytpi_mutex_t *m);
void ytpi_mutex_unlock(ytpi_mutex_t *m);

#endif
