# A build that took nvrtc.h from a pip wheel installs that wheel's library too: the folder in which the wheel lies is the build's
# (.venv), and an installed program would find no NVRTC. It goes to <libdir>/attnforge, where the library looks first.
option(ATTNFORGE_INSTALL_NVRTC "Install the NVRTC of the pip wheel that was built with" ON)

# attnforge_install_nvrtc(<folders of headers>): sets ATTNFORGE_NVRTC_INSTALLED when there is something to install.
function(attnforge_install_nvrtc folders)
  set(ATTNFORGE_NVRTC_INSTALLED FALSE PARENT_SCOPE)
  if(NOT ATTNFORGE_INSTALL_NVRTC)
    return()
  endif()
  foreach(folder IN LISTS folders)
    if(NOT folder MATCHES "-packages/nvidia/" OR NOT EXISTS ${folder}/nvrtc.h)
      continue()
    endif()
    file(GLOB files ${folder}/../lib/libnvrtc.so.[0-9]* ${folder}/../lib/libnvrtc-builtins.so.[0-9]*)
    list(FILTER files EXCLUDE REGEX "\\.alt\\.")
    install(PROGRAMS ${files} DESTINATION ${CMAKE_INSTALL_LIBDIR}/attnforge COMPONENT nvrtc)
    set(ATTNFORGE_NVRTC_INSTALLED TRUE PARENT_SCOPE)
    return()
  endforeach()
endfunction()
