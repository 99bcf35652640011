# A library and a program that run with an older glibc than the machine's that built them, for wheels (./dev wheel).
set(ATTNFORGE_GLIBC "" CACHE STRING "The oldest glibc that the library and the program are to run with, e.g. 2.28; empty: this machine's")

# attnforge_for_old_glibc(<target>): it takes of glibc what ATTNFORGE_GLIBC has, and has the rest and libstdc++ inside.
function(attnforge_for_old_glibc target)
  if(NOT ATTNFORGE_GLIBC)
    return()
  endif()
  set(folder ${PROJECT_BINARY_DIR}/glibc-${ATTNFORGE_GLIBC})
  if(NOT EXISTS ${folder}/libm.so)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/old_glibc.py ${ATTNFORGE_GLIBC} ${CMAKE_C_COMPILER} ${folder}
                    COMMAND_ERROR_IS_FATAL ANY)
  endif()
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/old_glibc.c)
  target_link_options(${target} PRIVATE -static-libstdc++ -L${folder} "SHELL:-Wl,--push-state,--no-as-needed -lpthread -ldl -Wl,--pop-state"
    LINKER:--allow-shlib-undefined LINKER:--wrap=__libc_start_main)
endfunction()
