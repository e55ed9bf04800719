// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The library as libibverbs loads it: by dlopen(), with every symbol bound.
#include <dlfcn.h>
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <ropcie-abi.h>

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

TEST(ProviderLoad, TakesItsDevicesByName) {
  ASSERT_NE(dlopen(ROPCIE_PROVIDER, RTLD_NOW), nullptr) << dlerror();
  const char* pattern = registered()->modalias;
  ASSERT_NE(pattern, nullptr);
  EXPECT_EQ(fnmatch(pattern, "rdma_device:N ropcie0", 0), FNM_NOMATCH);
  EXPECT_EQ(fnmatch(pattern, "rdma_device:Nropcie0", 0), 0);
  EXPECT_EQ(fnmatch(pattern, "rdma_device:Nropcie12", 0), 0);
  EXPECT_EQ(fnmatch(pattern, "rdma_device:Nrxe0", 0), FNM_NOMATCH);
}

TEST(ProviderLoad, ExportsNothing) {
  void* library = dlopen(ROPCIE_PROVIDER, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(dlsym(library, "ropcie_post_send"), nullptr);
  EXPECT_EQ(dlsym(library, "ropcie_create_qp"), nullptr);
}

}  // namespace
