/* Marks the public functions; everything else is hidden. */
#ifndef YTP_VISIBILITY_H
#define YTP_VISIBILITY_H

#if defined(YTP_STATIC) /* linked into something that exports nothing of ours */
#define YTP_API
#elif defined(__GNUC__)
#define YTP_API __attribute__((visibility("default")))
#else
#define YTP_API
#endif

#endif
