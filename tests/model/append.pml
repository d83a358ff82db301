/* Appending to one list: reserve, fill, chain, commit, close, with a crash after every step.
 *
 * The labels COUNTER, LINK and HINT are those of csrc/src/list.c and docs/design/memory-order.md. Each labelled line is
 * one atomic access of the C code; everything between two of them may be interleaved with every other process. The
 * machine here is sequentially consistent: tso.pml and the thread sanitizer look after weaker ones.
 *
 * Settings (-D): WRITERS, CRASHES (how many processes may die), BATCH (writer 0 publishes two nodes at once), CLOSER (a
 * process closes the list), and one MUTANT_* at a time, each of which must be caught.
 *
 * Checked: blocks never overlap nor cross a page; a reader meets only whole nodes, linked both ways and numbered without
 * gaps; at the end every acknowledged message is in the list once, a batch entirely or not at all and in one piece,
 * nothing that was refused is in, nothing follows a close. Every process ends, whoever dies: there is no cycle. */
#ifndef WRITERS
#define WRITERS 3
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifdef BATCH
#define NODES_OF(w) ((w) == 0 -> 2 : 1)
#else
#define NODES_OF(w) 1
#endif

#define SLOTS 16
#define PAGE 4
#define HEAD 0          /* the list head stands in slot 0 */
#define CLOSED 255      /* what a closed list has for a link */
#define SPAN_OF(w) (1 + (w) % 2)

byte counter = 1;       /* first free slot */
byte hint = HEAD;
byte next[SLOTS], prev[SLOTS], seqno[SLOTS];
bool filled[SLOTS];

/* What only the checks know. */
byte owner[SLOTS];      /* writer + 1 */
bool acknowledged[WRITERS], refused[WRITERS], closed;
byte alive, crashes;

/* The process may die here. */
#define STEP if :: skip :: atomic { crashes < CRASHES -> crashes++; goto gone } fi

inline reserve(me, start)
{
    seen = counter;                                     /* COUNTER: first look */
    do
    :: atomic {
           start = seen;
           if
           :: seen % PAGE + SPAN_OF(me) > PAGE -> start = seen + PAGE - seen % PAGE
           :: else -> skip
           fi;
           stop = start + SPAN_OF(me)
       };
#ifdef MUTANT_RESERVE_STORE
       counter = stop; break                            /* not a swap */
#else
       if
       :: atomic { counter == seen -> counter = stop };  /* COUNTER: swap */
          break
       :: atomic { counter != seen -> seen = counter }
       fi
#endif
    od;
    atomic {
        assert(stop <= SLOTS && start / PAGE == (stop - 1) / PAGE);
        i = start;
        do
        :: i < stop -> assert(owner[i] == 0); owner[i] = me + 1; i++
        :: else -> break
        od;
        i = 0
    }
}

/* Walks from `tail` until its link is 0 or says closed. */
inline walk()
{
    do
    :: link = next[tail];                               /* LINK: load */
       if
       :: link == 0 || link == CLOSED -> break
       :: else -> tail = link
       fi
    od
}

inline start_of_walk()
{
    if
    :: tail = hint                                      /* HINT: load */
    :: tail = HEAD                                      /* as far behind as can be */
    fi
}

proctype writer(byte me)
{
    byte seen, start, stop, i, first, last, tail, link, nodes;

    do
    :: nodes < NODES_OF(me) ->
       reserve(me, start);
       STEP;
       next[start] = 0;
       prev[start] = start;
       STEP;
#ifndef MUTANT_FILL_LATE
       filled[start] = true;
       STEP;
#endif
       if
       :: nodes == 0 -> first = start
       :: else ->
          prev[start] = last;
          next[last] = start;
          STEP
       fi;
       last = start;
       nodes++
    :: else -> break
    od;

    start_of_walk();
#ifdef MUTANT_PREV_ONCE
    walk();
    prev[first] = tail;
#endif
    do
    :: walk();
       if
       :: link == CLOSED -> refused[me] = true; goto gone
       :: else -> skip
       fi;
       d_step {
#ifndef MUTANT_PREV_ONCE
           prev[first] = tail;
#endif
           seqno[first] = seqno[tail] + 1;
           if
           :: first != last -> seqno[last] = seqno[first] + 1
           :: else -> skip
           fi
       };
       STEP;
#ifdef MUTANT_LINK_STORE
       next[tail] = first; break                        /* not a swap */
#else
       if
       :: atomic { next[tail] == 0 -> next[tail] = first }; /* LINK: swap */
          break
       :: next[tail] != 0
       fi
#endif
    od;
#ifdef MUTANT_FILL_LATE
    filled[first] = true;
#endif
    STEP;
    hint = last;                                        /* HINT: store, possibly backwards */
    STEP;
    acknowledged[me] = true;
gone:
    alive--
}

proctype closer()
{
    byte tail, link;

    start_of_walk();
    do
    :: walk();
       if
       :: link == CLOSED -> break
       :: else -> skip
       fi;
       STEP;
#ifdef MUTANT_CLOSE_STORE
       next[tail] = CLOSED; closed = true; break        /* not a swap */
#else
       if
       :: atomic { next[tail] == 0 -> next[tail] = CLOSED; closed = true }; /* LINK: swap */
          break
       :: next[tail] != 0
       fi
#endif
    od;
gone:
    alive--
}

proctype reader()
{
    byte at = HEAD, link;

    do
    :: next[at] != 0 || alive == 0 ->                   /* sleeps, see wait.pml */
       link = next[at];                                 /* LINK: load */
       if
       :: link == 0 || link == CLOSED -> break
       :: else ->
          assert(filled[link] && prev[link] == at && seqno[link] == seqno[at] + 1);
          at = link
       fi
    od
}

init
{
    byte w, at, met, i, before;
    byte times[WRITERS];

    atomic {
        alive = WRITERS;
        w = 0;
        do
        :: w < WRITERS -> run writer(w); w++
        :: else -> break
        od;
#ifdef CLOSER
        alive++;
        run closer();
#endif
        run reader()
    };
    alive == 0;
    d_step {
        at = HEAD;
        before = 0;
        do
        :: next[at] != 0 && next[at] != CLOSED ->
           assert(met < SLOTS && prev[next[at]] == at && filled[next[at]] && seqno[next[at]] == seqno[at] + 1);
           at = next[at];
           w = owner[at] - 1;
           assert(times[w] == 0 || before == owner[at]);    /* a batch lies in one piece */
           times[w]++;
           before = owner[at];
           met++
        :: else -> break
        od;
        assert(!closed || next[at] == CLOSED);
        w = 0;
        do
        :: w < WRITERS ->
           assert(!acknowledged[w] || times[w] == NODES_OF(w));
           assert(!refused[w] || times[w] == 0);
           assert(times[w] == 0 || times[w] == NODES_OF(w));
           w++
        :: else -> break
        od;
        /* The hint names the head or a node of the list. */
        assert(hint == HEAD || next[prev[hint]] == hint)
    }
}
