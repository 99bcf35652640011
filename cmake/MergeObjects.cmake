# Run with cmake -P: makes one object of many, for libattnforge.a. Only what SHARED exports is kept visible, what nothing
# reaches from there is dropped, and what several objects hold is there once. Takes LD, NM, OBJCOPY, SHARED, OBJECTS (a file
# that lists them, one a line, quoted), OUTPUT.
execute_process(COMMAND ${NM} --dynamic --defined-only --format=posix ${SHARED}
                OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+\n" lines "${lines}")
set(exported "")
foreach(line IN LISTS lines)
  string(REGEX REPLACE "[ @].*" "" name "${line}")
  string(APPEND exported "${name}\n")
endforeach()
file(WRITE ${OUTPUT}.exported "${exported}")
string(REPLACE "\n" " " roots "${exported}")
# One section of each kind: thousands of headers and names are a third of the size. Without .eh_frame no exception is caught, without
# .init_array no global is initialised.
file(WRITE ${OUTPUT}.ld "EXTERN(${roots})
SECTIONS {
  .text 0 : { *(.text .text.*) }
  .rodata 0 : { *(.rodata .rodata.*) }
  .data.rel.ro 0 : { *(.data.rel.ro .data.rel.ro.*) }
  .data 0 : { *(.data .data.*) }
  .bss 0 : { *(.bss .bss.*) }
  .init_array 0 : { KEEP(*(.init_array .init_array.*)) }
  .eh_frame 0 : { KEEP(*(.eh_frame)) }
  .gcc_except_table 0 : { *(.gcc_except_table .gcc_except_table.*) }
}
")
execute_process(COMMAND ${LD} -r --gc-sections --force-group-allocation -T ${OUTPUT}.ld -o ${OUTPUT} @${OBJECTS}
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${OBJCOPY} --keep-global-symbols=${OUTPUT}.exported --strip-unneeded ${OUTPUT}
                COMMAND_ERROR_IS_FATAL ANY)
