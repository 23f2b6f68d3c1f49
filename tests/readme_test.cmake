# What the README shows is so: the quickstart is the file, its commands run, and its tables are what they print.
#
#   cmake -DROOT=<repository> -DEXAMPLES=<folder of the built examples> -P <this>
cmake_minimum_required(VERSION 3.25)

file(READ "${ROOT}/README.md" readme)
file(READ "${ROOT}/examples/quickstart.cpp" quickstart)
string(FIND "${readme}" "```cpp\n${quickstart}```" position)
if(position EQUAL -1)
  message(SEND_ERROR "README.md does not show examples/quickstart.cpp as it stands")
endif()

# Every "$ command" with the lines below it, up to the next command or the end of the block. The two workflow commands
# are what built this and what runs it; a training makes two steps.
string(REPLACE ";" "," text "${readme}")
string(REGEX REPLACE "[][]" "|" text "${text}")
string(REPLACE "\n" ";" lines "${text}")
set(output "")
foreach(line IN LISTS lines)
  if(line MATCHES "^\\$ (.*)$")
    set(command "${CMAKE_MATCH_1}")
    set(output "")
    if(command MATCHES "^build/release/examples/(.*)$")
      set(command "${EXAMPLES}/${CMAKE_MATCH_1}")
      if(command MATCHES "train_transformer " OR command MATCHES "train_transformer$")
        string(APPEND command " --steps 2 --warmup 0")
      endif()
      execute_process(COMMAND sh -c "${command}" WORKING_DIRECTORY "${ROOT}"
                      RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
      if(failed)
        message(SEND_ERROR "README.md: $ ${command}\n${output}")
      endif()
    elseif(NOT command MATCHES "^cmake --workflow --preset (train|test)$")
      message(SEND_ERROR "README.md: $ ${command}\nis no command that this test knows")
    endif()
  elseif(line MATCHES "^```")
    set(output "")
  elseif(output AND line MATCHES " P\\(|^(all_|reduce_scatter|total )")
    string(FIND "${output}" "${line}" position)
    if(position EQUAL -1)
      message(SEND_ERROR "README.md shows a line that its command does not print:\n${line}")
    endif()
  endif()
endforeach()
