# examples/, built against the installed package and run: on the fake driver, and where a GPU is on that.
set(EXAMPLES_COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/examples_test.py
  --build ${PROJECT_BINARY_DIR} --examples ${PROJECT_SOURCE_DIR}/examples --generator ${CMAKE_GENERATOR}
  --c-compiler ${CMAKE_C_COMPILER} --cxx-compiler ${CMAKE_CXX_COMPILER} "--flags=${CONSUMER_FLAGS}"
  "--cuda-include=${ATTNFORGE_CUDA_HEADERS_FOUND}" --fake-driver $<TARGET_FILE:attnforge_fake_driver>
  --fake-nvrtc $<TARGET_FILE:attnforge_fake_nvrtc>)
add_test(NAME project.examples_on_fake_driver COMMAND ${EXAMPLES_COMMAND})
add_test(NAME project.examples COMMAND ${EXAMPLES_COMMAND} --gpu)
set_tests_properties(project.examples_on_fake_driver project.examples PROPERTIES TIMEOUT 300 COST 900)
set_tests_properties(project.examples PROPERTIES LABELS gpu RESOURCE_LOCK gpu SKIP_RETURN_CODE 77)
