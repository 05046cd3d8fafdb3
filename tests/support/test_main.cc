#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  // Googlemock's initialisation covers GoogleTest's.
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
