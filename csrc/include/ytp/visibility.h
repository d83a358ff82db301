/* Marks the public functions; everything else is hidden. */
#ifndef YTP_VISIBILITY_H
#define YTP_VISIBILITY_H

#if defined(__GNUC__)
#define YTP_API __attribute__((visibility("default")))
#else
#define YTP_API
#endif

#endif
