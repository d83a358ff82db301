/* Rolling: a log of several files, each ended by a seal, with a crash after every step.
 *
 * A writer that finds its file full appends a seal by the same swap as any message (LINK), then makes the next file under
 * a temporary name and links it into place, which one process wins. A writer that finds a seal goes on to the next file
 * and makes it if nobody has. A reader that meets a seal goes on to the next file as soon as there is one.
 *
 * Settings (-D): WRITERS, CRASHES, and one MUTANT_* at a time. Files hold CAPACITY messages before a writer seals them
 * (more may get in before the seal does).
 *
 * Checked: nothing follows a seal, every acknowledged message is in exactly one file and in its writer's order across
 * files, a reader meets them all in the order of the files, and every survivor ends. */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define MESSAGES 2          /* per writer */
#define CAPACITY 1
#define FILES 6
#define ROOM 5              /* places in a file */
#define SEAL 255

typedef file_t {
    bool exists;
    byte length;
    byte entry[ROOM];       /* writer * 16 + number, or SEAL */
};
file_t file[FILES];
byte alive = WRITERS, crashes;
byte acknowledged[WRITERS];

#define STEP if :: skip :: atomic { crashes < CRASHES -> crashes++; goto gone } fi
#define SEALED(f) (file[f].length > 0 && file[f].entry[file[f].length - 1] == SEAL)

/* LINK: one swap on the tail. The walk before it looked at the tail and refused a seal. */
inline append(f, what, result)
{
    seen = file[f].length;                              /* LINK: load */
    do
    :: true ->
#ifndef MUTANT_IGNORE_SEAL
       if
       :: SEALED(f) && file[f].length == seen -> result = false; break
       :: else -> skip
       fi;
#endif
       if
       :: atomic {                                      /* LINK: swap */
              file[f].length == seen ->
              assert(!SEALED(f));
              file[f].entry[seen] = what;
              file[f].length++
          };
          result = true;
          break
       :: atomic { file[f].length != seen -> seen = file[f].length }
       fi
    od
}

proctype writer(byte me)
{
    byte f, sent, seen;
    bool in;

    do
    :: sent < MESSAGES ->
       if
       :: file[f].length >= CAPACITY && !SEALED(f) ->
          append(f, SEAL, in);
          STEP
       :: else -> skip
       fi;
       append(f, me * 16 + sent, in);
       STEP;
       if
       :: in -> sent++; acknowledged[me] = sent
       :: else ->
#ifdef MUTANT_SEALER_MAKES_THE_FILE
          file[f + 1].exists;                           /* waits for whoever sealed */
#else
          atomic { !file[f + 1].exists -> file[f + 1].exists = true } unless { file[f + 1].exists };
#endif
          STEP;
          f++
       fi
    :: else -> break
    od;
gone:
    alive--
}

proctype reader()
{
    byte f, at;
    byte due[WRITERS];

    do
    :: at < file[f].length ->
       if
       :: file[f].entry[at] == SEAL ->
          assert(at + 1 == file[f].length);
          if
          :: file[f + 1].exists -> f++; at = 0
          :: alive == 0 && !file[f + 1].exists -> break
          fi
       :: else ->
          assert(file[f].entry[at] % 16 == due[file[f].entry[at] / 16]);
          due[file[f].entry[at] / 16]++;
          at++
       fi
    :: at == file[f].length && alive == 0 -> break
    od;
    f = 0;
    do
    :: f < WRITERS -> assert(due[f] >= acknowledged[f]); f++
    :: else -> break
    od
}

init
{
    byte w;

    atomic {
        file[0].exists = true;
        do
        :: w < WRITERS -> run writer(w); w++
        :: else -> break
        od;
        run reader()
    }
}
