/* Message passing, the shape of every release and acquire pair: fill something in, then publish a word that leads to it.
 *
 * The machine is as weak as any: stores on their way to memory overtake each other unless the later one is a release,
 * loads are done early unless the one before is an acquire. WEAK_STORE and WEAK_LOAD weaken one side; each must be
 * caught. docs/design/memory-order.md says which words of the core are such pairs. */
bool data, flag;            /* memory */
bool data_late, flag_late;  /* on their way there */

active proctype writer()
{
    data_late = true;
#ifndef WEAK_STORE
    !data_late;             /* release: what comes before has arrived */
#endif
    flag_late = true
}

active proctype machine()
{
end:
    do
    :: atomic { data_late -> data_late = false; data = true }
    :: atomic { flag_late -> flag_late = false; flag = true }
    od
}

active proctype reader()
{
    bool published, seen;

    if
    :: published = flag; seen = data
#ifdef WEAK_LOAD
    :: seen = data; published = flag
#endif
    fi;
    assert(!published || seen)
}
