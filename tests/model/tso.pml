/* The sequentially consistent pairs of the wait protocol on a machine with store buffers.
 *
 * A store that is not sequentially consistent goes into a buffer of its process and reaches memory at some later time,
 * after loads that follow it in the program. A sequentially consistent one empties the buffer first and acts on memory
 * directly. On x86 that is the whole weakness of the machine; on others a weaker order on either half of a pair (the
 * store or the load that follows) allows the same reordering, so each of the four accesses has its mutant here:
 *
 *   writer   WEAK_LINK   the swap that publishes           reader   WEAK_ARM    the fetch_or that arms the word
 *            WEAK_NOTICE the look at the word after it              WEAK_LOOK   the look at the list after it
 *
 * Each must lose a wake-up; without any, none is lost. */
#ifndef READERS
#define READERS 2
#endif
#define MESSAGES 2

#if defined(WEAK_LINK) || defined(WEAK_NOTICE)
#define WRITER_BUFFERS
#endif
#if defined(WEAK_ARM) || defined(WEAK_LOOK)
#define READER_BUFFERS
#endif

byte committed;             /* in memory */
byte word;
bool asleep[READERS];
bool writer_gone;

byte late_links;            /* the writer's buffer: publications on their way */
bool late_arm[READERS];     /* a reader's buffer: bit 0 on its way */

active proctype writer()
{
    byte sent, value, i;

    do
    :: sent < MESSAGES ->
#ifdef WRITER_BUFFERS
       late_links++;                                    /* LINK: swap, too weak */
#else
       atomic { committed = committed + late_links + 1; late_links = 0 };  /* LINK: swap */
#endif
       value = word;                                    /* WAIT: look after the commit */
       sent++;
       do
       :: value % 2 == 1 ->
          if
          :: atomic { word == value -> committed = committed + late_links; late_links = 0; word = value + 1 };
             d_step {                                   /* FUTEX_WAKE */
                 i = 0;
                 do
                 :: i < READERS -> asleep[i] = false; i++
                 :: else -> break
                 od;
                 i = 0
             };
             break
          :: atomic { word != value -> value = word }
          fi
       :: else -> break
       od
    :: else -> break
    od;
    writer_gone = true
}

/* Buffers empty themselves, one entry at a time, whenever they like. */
active proctype buffers()
{
    byte i;

end:
    do
    :: atomic { late_links > 0 -> late_links--; committed++ }
    :: atomic { late_arm[0] -> late_arm[0] = false; word = word | 1 }
#if READERS > 1
    :: atomic { late_arm[1] -> late_arm[1] = false; word = word | 1 }
#endif
    od
}

proctype reader(byte me)
{
    byte met, value;

    do
    :: met == MESSAGES -> break
    :: met < committed -> met++                         /* LINK: load */
    :: met == committed && met < MESSAGES ->
#ifdef READER_BUFFERS
       atomic { value = word | 1; late_arm[me] = true };    /* WAIT: arm, too weak */
#else
       atomic { word = word | 1; value = word };            /* WAIT: arm */
#endif
       if
       :: met < committed                               /* WAIT: last look */
       :: else ->
          /* FUTEX_WAIT: the kernel's lock empties the buffer, then it compares and puts to sleep in one step. */
          atomic {
              if
              :: late_arm[me] -> late_arm[me] = false; word = word | 1
              :: else -> skip
              fi;
              if
              :: word == value -> asleep[me] = true
              :: else -> skip
              fi
          };
          !asleep[me]
       fi
    od
}

init
{
    atomic {
        run reader(0);
#if READERS > 1
        run reader(1)
#endif
    }
}
