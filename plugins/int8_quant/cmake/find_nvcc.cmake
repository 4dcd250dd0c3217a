# Sets CMAKE_CUDA_COMPILER and what it needs, before the language is enabled.

set(toolkit "$ENV{AICORE_CUDA_TOOLKIT}")
if(NOT toolkit MATCHES "^(|local|wheel)$")
  message(FATAL_ERROR "AICORE_CUDA_TOOLKIT=${toolkit} is no choice; set local, wheel or nothing")
endif()

unset(nvcc CACHE)
if(NOT toolkit STREQUAL "wheel")
  find_program(nvcc nvcc HINTS "$ENV{CUDA_HOME}/bin" PATHS ENV PATH NO_DEFAULT_PATH)
endif()

if(nvcc)
  set(CMAKE_CUDA_COMPILER "${nvcc}")
elseif(toolkit STREQUAL "local")
  message(FATAL_ERROR "there is no nvcc in CUDA_HOME or PATH, and AICORE_CUDA_TOOLKIT=local forbids the one from wheels")
else()
  # The wheels install to site-packages/nvidia/cu13 of the environment that builds.
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c "import importlib.util as u; print(*(u.find_spec('nvidia') or type('', (), {'submodule_search_locations': ()})).submodule_search_locations, sep='\\n')"
    OUTPUT_VARIABLE folders OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REPLACE "\n" ";" folders "${folders}")
  foreach(folder IN LISTS folders)
    if(EXISTS "${folder}/cu13/bin/nvcc")
      set(root "${folder}/cu13")
    endif()
  endforeach()
  if(NOT root)
    message(FATAL_ERROR "no nvcc: set CUDA_HOME to a CUDA toolkit, put nvcc on PATH, or install the wheels that pyproject.toml lists")
  endif()
  set(CMAKE_CUDA_COMPILER "${root}/bin/nvcc")
  # The compiler's profile says lib64, the wheels have lib: without this CMake's check of the compiler fails.
  set(CMAKE_CUDA_FLAGS_INIT "-L${root}/lib")
  include_directories(SYSTEM "${root}/include")
endif()
message(STATUS "CUDA compiler: ${CMAKE_CUDA_COMPILER}")
