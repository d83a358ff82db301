# ytp_flags: warnings, sanitizers and coverage for what this repository compiles; never installed.
add_library(ytp_flags INTERFACE)
target_compile_definitions(ytp_flags INTERFACE _GNU_SOURCE)

target_compile_options(ytp_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wvla
  $<$<BOOL:${YTP_WERROR}>:-Werror>)

if(YTP_SANITIZE)
  target_compile_options(ytp_flags INTERFACE
    -fsanitize=${YTP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(ytp_flags INTERFACE -fsanitize=${YTP_SANITIZE})
endif()

if(YTP_COVERAGE)
  target_compile_options(ytp_flags INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(ytp_flags INTERFACE --coverage)
endif()
