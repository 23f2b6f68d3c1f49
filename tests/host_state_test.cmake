# Linking the library must change nothing: cmake -DPLAIN=<host_state without> -DLINKED=<host_state with it> -P <this>.
cmake_minimum_required(VERSION 3.25)
foreach(program IN ITEMS PLAIN LINKED)
  execute_process(COMMAND "${${program}}" OUTPUT_VARIABLE ${program}_state RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${${program}}: ended with status ${status}")
  endif()
endforeach()
if(NOT PLAIN_state STREQUAL LINKED_state)
  message(FATAL_ERROR "Linking changes the program's state.\n--- without the library\n${PLAIN_state}\n"
                      "--- with the library\n${LINKED_state}")
endif()
