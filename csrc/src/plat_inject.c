/* Fault injection for tests: fails the n-th call to the operating system. Empty in the shipped library. */
#include "plat.h"

#ifdef YTP_INJECT

static _Atomic long remaining;
static _Atomic unsigned long calls;
static _Atomic int fail_with;

void ytpi_inject_fail(unsigned long nth, int sys_errno)
{
    ytpi_store_relaxed(&calls, 0);
    ytpi_store_relaxed(&fail_with, sys_errno);
    ytpi_store_relaxed(&remaining, (long)nth);
}

unsigned long ytpi_inject_calls(void)
{
    return ytpi_load_relaxed(&calls);
}

int ytpi_inject_point(void)
{
    ytpi_fetch_add(&calls, 1);
    if (ytpi_load_relaxed(&remaining) > 0 && ytpi_fetch_add(&remaining, -1) == 1)
        return ytpi_load_relaxed(&fail_with);
    return 0;
}

#else
/* ISO C wants a translation unit to declare something. */
typedef int ytpi_no_injection_t;
#endif
