/* The wait word: readers that sleep, writers that wake them. Labels as in csrc/src/wait.c and wait.h.
 *
 * The word has bit 0 = somebody waits and a generation above it. A reader arms it (fetch_or 1), looks at the list once
 * more and sleeps on exactly the value that it made; a writer that finds bit 0 set after its commit moves the word to the
 * next generation, bit 0 clear, and wakes everybody. FUTEX_WAIT compares and falls asleep in one step.
 *
 * Settings (-D): WRITERS, READERS, MESSAGES (per writer), DIES (writers may die between any two steps, so parks are
 * bounded: a sleeper may wake by itself), WATCHER (the last reader has no write permission: it cannot arm and its parks
 * are bounded), and one MUTANT_* at a time.
 *
 * Checked: every reader gets every message that was committed, and no process is ever stuck: a sleeper that nobody will
 * wake although its message is there shows as an invalid end state. */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef READERS
#define READERS 2
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif

byte committed;             /* length of the list; LINK is what makes it grow */
byte word;                  /* the wait word */
bool asleep[READERS];
byte alive = WRITERS;

#ifdef DIES
#define STEP if :: skip :: goto gone fi
#else
#define STEP skip
#endif

proctype writer()
{
    byte sent, value;

    do
    :: sent < MESSAGES ->
#ifdef MUTANT_LOOK_BEFORE_COMMIT
       value = word;
       committed++;
#else
       committed++;                                     /* LINK: swap */
       STEP;
       value = word;                                    /* WAIT: look after the commit */
#endif
       sent++;
       do
       :: value % 2 == 1 ->
          STEP;
#ifdef MUTANT_KEEP_GENERATION
          if
          :: atomic { word == value -> word = value - 1 };
#else
          if
          :: atomic { word == value -> word = value + 1 };  /* WAIT: next generation */
#endif
             STEP;
             d_step {                                   /* FUTEX_WAKE */
                 value = 0;
                 do
                 :: value < READERS -> asleep[value] = false; value++
                 :: else -> break
                 od;
                 value = 0
             };
             break
          :: atomic { word != value -> value = word }
          fi
       :: else -> break
       od;
       STEP
    :: else -> break
    od;
gone:
    alive--
}

proctype reader(byte me; bool may_write)
{
    byte met, value;

    do
    :: met < committed -> met++                         /* LINK: load */
    :: met == committed && (alive == 0 && met == committed || met == WRITERS * MESSAGES) -> break
    :: met == committed && alive > 0 ->
       if
       :: may_write ->
#ifdef MUTANT_LOOK_BEFORE_ARM
          if
          :: met < committed -> goto next
          :: else -> skip
          fi;
          atomic { word = word | 1; value = word };
#else
          atomic { word = word | 1; value = word };     /* WAIT: arm */
          if
          :: met < committed -> goto next               /* WAIT: last look */
          :: else -> skip
          fi;
#endif
       :: else ->
          value = word;                                 /* WAIT: watch only */
          if
          :: met < committed -> goto next
          :: else -> skip
          fi
       fi;
#ifdef MUTANT_SLEEP_ON_LATER_VALUE
       value = word;
#endif
       if
       :: atomic { word == value -> asleep[me] = true }; /* FUTEX_WAIT */
          if
          :: !asleep[me]
#ifdef DIES
          :: atomic { asleep[me] -> asleep[me] = false } /* the park is bounded */
#else
          :: atomic { asleep[me] && !may_write -> asleep[me] = false }
#endif
          :: atomic { asleep[me] && alive == 0 && met == committed -> break }
          fi
       :: word != value                                 /* EAGAIN */
       fi;
next:  skip
    od
}

init
{
    byte i;

    atomic {
        do
        :: i < WRITERS -> run writer(); i++
        :: else -> break
        od;
        i = 0;
        do
#ifdef WATCHER
        :: i < READERS -> run reader(i, i + 1 < READERS); i++
#else
        :: i < READERS -> run reader(i, true); i++
#endif
        :: else -> break
        od
    };
    _nr_pr == 1;                                        /* all have come to their end */
    assert(committed <= WRITERS * MESSAGES);
#ifndef DIES
    assert(committed == WRITERS * MESSAGES)
#endif
}
