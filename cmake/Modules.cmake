# SPDX-License-Identifier: GPL-2.0
# The target `modules`: kernel/ against the kernel tree KDIR. kbuild decides
# what is out of date, so the target always runs.
set(kdir ${KDIR})
if(NOT kdir)
  cmake_host_system_information(RESULT running QUERY OS_RELEASE)
  file(GLOB kdirs /lib/modules/*/build)
  list(SORT kdirs COMPARE NATURAL)
  foreach(candidate /lib/modules/${running}/build ${kdirs})
    if(NOT kdir AND EXISTS ${candidate}/Makefile)
      set(kdir ${candidate})
    endif()
  endforeach()
endif()
if(NOT EXISTS ${kdir}/include/generated/utsrelease.h)
  if(KDIR)
    message(FATAL_ERROR
      "KDIR: '${KDIR}' is no prepared kernel tree. Set -DKDIR=... to one, or "
      "-UKDIR to take the running kernel's")
  endif()
  message(FATAL_ERROR
    "no kernel headers are installed: run scripts/setup build, "
    "set -DKDIR=..., or build without modules (-DROPCIE_MODULES=OFF)")
endif()
file(STRINGS ${kdir}/include/generated/utsrelease.h release REGEX UTS_RELEASE)
string(REGEX REPLACE ".*\"(.*)\".*" "\\1" release ${release})
string(REGEX MATCH "^[0-9]+\\.[0-9]+" series ${release})
message(STATUS "Kernel modules for ${release} (${kdir})")
if(NOT KDIR AND NOT release STREQUAL running)
  message(STATUS
    "They do not load into the running kernel, ${running}: it wants linux-headers-${running}")
endif()
add_custom_target(
  modules ALL
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/build-modules --kdir ${kdir} --out
          ${CMAKE_BINARY_DIR}/modules-${series}
  USES_TERMINAL VERBATIM COMMENT "Building kernel modules for ${release}")

# For `modprobe ropcie`. Linux's own NTB core comes along where the kernel
# was built without it.
install(CODE "
  set(built ${CMAKE_BINARY_DIR}/modules-${series})
  file(GLOB files \${built}/bus/*.ko \${built}/ntb_if/*.ko \${built}/device/*.ko
    \${built}/driver/*.ko \${built}/ntb_hw_ivshmem/*.ko \${built}/extra/ntb.ko)
  file(INSTALL \${files} DESTINATION /lib/modules/${release}/updates/ropcie)
  if(NOT \"\$ENV{DESTDIR}\")
    execute_process(COMMAND depmod ${release})
  endif()")
