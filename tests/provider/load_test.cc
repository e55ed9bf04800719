// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The library as libibverbs loads it: by dlopen(), with every symbol bound.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ropcie-abi.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "registered.h"

namespace {

TEST(ProviderLoad, RegistersItselfWithLibibverbs) {
  ASSERT_EQ(registered(), nullptr);
  ASSERT_NE(dlopen(ROPCIE_PROVIDER, RTLD_NOW), nullptr) << dlerror();
  const struct registered* provider = registered();
  ASSERT_NE(provider, nullptr) << "the constructor registered nothing";
  EXPECT_STREQ(provider->name, "ropcie");
  EXPECT_TRUE(provider->has_all_calls);
  EXPECT_EQ(provider->min_abi, ROPCIE_ABI_VERSION);
  EXPECT_EQ(provider->max_abi, ROPCIE_ABI_VERSION);
}

TEST(ProviderLoad, TakesItsDevicesWhateverTheirNames) {
  ASSERT_NE(dlopen(ROPCIE_PROVIDER, RTLD_NOW), nullptr) << dlerror();
  std::string dir = testing::TempDir() + "sysfsXXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const std::string file = dir + "/hca_type";
  EXPECT_EQ(registered_matches(dir.c_str()), 0);
  for (const auto& [text, right] :
       {std::pair{"RoPCIe\n", 1}, std::pair{"RoPCIe", 1},
        std::pair{"RoPCIe2\n", 0}, std::pair{"MT4119\n", 0},
        std::pair{"Ro\n", 0}, std::pair{"", 0}}) {
    std::ofstream(file) << text;
    EXPECT_EQ(registered_matches(dir.c_str()), right) << text;
  }
  std::filesystem::remove_all(dir);
}

TEST(ProviderLoad, RefusesALibraryOfAnotherLayout) {
  ASSERT_NE(dlopen(ROPCIE_PROVIDER, RTLD_NOW), nullptr) << dlerror();
  testing::internal::CaptureStderr();
  EXPECT_EQ(registered_opens(), EPROTO);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("build and install it again"), std::string::npos) << said;
}

TEST(ProviderLoad, ExportsNothing) {
  void* library = dlopen(ROPCIE_PROVIDER, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(dlsym(library, "ropcie_post_send"), nullptr);
  EXPECT_EQ(dlsym(library, "ropcie_create_qp"), nullptr);
}

}  // namespace
